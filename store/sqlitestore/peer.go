package sqlitestore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxPeers bounds the handles that one listens to.
	maxPeers = 1024

	// peerPace is how long after a write to a peer the next one comes at the
	// earliest. What is to be said meanwhile goes together, so that a busy
	// process does not wake the others all the time.
	peerPace = time.Millisecond

	// maxPending bounds what waits for a peer that does not read: the bytes of
	// messages, of which more are lost, and names, of which more become one
	// call to look at everything.
	maxPending      = 1 << 20
	maxPendingNames = 1024

	// lastWords is how long a handle that is closed waits for a peer to take
	// what was still to be said.
	lastWords = 50 * time.Millisecond
)

// peer is another handle that is told things. Nobody waits for it: what it does
// not take in time is lost, except that something was written.
type peer struct {
	more chan struct{} // holds one if there is something to send

	mu     sync.Mutex
	conn   net.Conn // nil while it is being connected
	casts  []byte   // messages as they are sent
	names  map[string]struct{}
	every  bool // more names than are kept
	closed bool
}

func newPeer() *peer {
	return &peer{more: make(chan struct{}, 1), names: map[string]struct{}{}}
}

// wake notes which journals and cells were written.
func (to *peer) wake(batch []*request) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, r := range batch {
		if r.err == nil {
			to.names[r.name] = struct{}{}
			for _, key := range r.cells {
				to.names[key] = struct{}{}
			}
		}
	}
	if len(to.names) > maxPendingNames {
		clear(to.names)
		to.every = true
	}
	to.ring()
}

// cast notes a message, unless there is no room for it.
func (to *peer) cast(topic string, message []byte) {
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(topic) <= maxPeerName && len(to.casts)+peerHeader+len(topic)+len(message) <= maxPending {
		to.casts = appendPeerMessage(to.casts, peerMessage{castOne, topic, message})
		to.ring()
	}
}

func (to *peer) ring() {
	select {
	case to.more <- struct{}{}:
	default:
	}
}

// close lets send end soon.
func (to *peer) close() {
	to.mu.Lock()
	defer to.mu.Unlock()
	to.closed = true
	if to.conn != nil {
		_ = to.conn.SetWriteDeadline(time.Now().Add(lastWords)) // a socket has deadlines
	}
	to.ring()
}

// connected sets the connection on which what is noted is sent.
func (to *peer) connected(conn net.Conn) {
	to.mu.Lock()
	defer to.mu.Unlock()
	to.conn = conn
	if to.closed {
		_ = conn.SetWriteDeadline(time.Now().Add(lastWords))
	}
}

// send sends what is noted until the peer is gone or closed.
func (to *peer) send(conn net.Conn) {
	to.connected(conn)
	var buf []byte
	for range to.more {
		var closed bool
		if buf, closed = to.take(buf[:0]); len(buf) > 0 {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
		if closed {
			return
		}
		time.Sleep(peerPace)
	}
}

// take appends what is to be sent to buf. Messages go first: they were cast
// before the writes that make them obsolete.
func (to *peer) take(buf []byte) (_ []byte, closed bool) {
	to.mu.Lock()
	defer to.mu.Unlock()
	buf = append(buf, to.casts...)
	to.casts = to.casts[:0]
	if to.every {
		buf = appendPeerMessage(buf, peerMessage{kind: wakeEvery})
	}
	for name := range to.names {
		buf = appendPeerMessage(buf, peerMessage{kind: wakeOne, name: name})
	}
	clear(to.names)
	to.every = false
	return buf, to.closed
}

// The kinds of what peers tell each other. Others, of a newer version, mean
// nothing.
const (
	wakeOne   = 'w' // the journal or cell called name was written
	wakeEvery = 'W' // anything may have been
	castOne   = 'c' // body was cast to the topic called name
)

// peerMessage is what peers tell each other: a byte for the kind, the lengths of
// name and body, and both.
type peerMessage struct {
	kind byte
	name string
	body []byte
}

const (
	peerHeader  = 1 + 4 + 4
	maxPeerName = 4 << 10
)

var errPeerMessage = errors.New("sqlitestore: a peer's message is too long")

func appendPeerMessage(buf []byte, m peerMessage) []byte {
	buf = append(buf, m.kind)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(m.name)))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(m.body)))
	buf = append(buf, m.name...)
	return append(buf, m.body...)
}

func readPeerMessage(r *bufio.Reader) (m peerMessage, err error) {
	var header [peerHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return m, err
	}
	m.kind = header[0]
	name, body := binary.LittleEndian.Uint32(header[1:]), binary.LittleEndian.Uint32(header[5:])
	if name > maxPeerName || body > maxPending {
		return m, errPeerMessage
	}
	rest := make([]byte, name+body)
	if _, err := io.ReadFull(r, rest); err != nil {
		return m, err
	}
	m.name, m.body = string(rest[:name]), rest[name:]
	return m, nil
}
