package sqlitestore

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// peersSuffix follows the database's name in that of the folder of sockets.
const peersSuffix = "-peers"

const (
	// linger is how long a handle goes on listening when nobody watches: the
	// next one is often about to.
	linger = time.Second

	// staleSocket is how old a socket is on which nobody listens before it is
	// removed: one that is younger may be about to be listened on.
	staleSocket = time.Minute

	// tryInterval is how often a handle tries to make its socket if it cannot.
	tryInterval = 2 * time.Second

	// connectTimeout bounds how long a handle waits for a connection.
	connectTimeout = 100 * time.Millisecond

	// lookPace is how often a handle looks for new ones. There may be thousands of
	// writes and messages a second.
	lookPace = 5 * time.Millisecond

	// newSocket is how long a handle polls at that pace when it has made a socket:
	// writers may not have looked since.
	newSocket = 4 * lookPace
)

// peers connects a handle with all others that have the database open, in this
// process and in others. A handle on which someone watches or listens has a
// socket in one folder beside the database. One that writes or casts looks into
// that folder, and tells all whose sockets it finds.
//
// What is told may get lost: the poller finds what was written all the same.
// Whoever can reach the sockets may write the database too, see openPeerFolder.
type peers struct {
	s       *Store
	folder  string       // of the sockets
	told    atomic.Int64 // how often another has told something
	running sync.WaitGroup

	mu       sync.Mutex
	users    int               // those who watch or listen
	later    *time.Timer       // ends lingering
	name     string            // of the handle's own socket, each time another
	listener *net.UnixListener // nil while the handle has no socket
	tried    time.Time         // when it was to be made last
	from     map[net.Conn]struct{}
	stamp    stamp            // of the folder when it was last read
	looked   time.Time        // when look last did
	open     *os.File         // the folder, nil before
	to       map[string]*peer // by the name of their sockets
	closed   bool
}

func newPeers(s *Store) *peers {
	return &peers{s: s, folder: s.file + peersSuffix, from: map[net.Conn]struct{}{}, to: map[string]*peer{}}
}

// join begins to listen for one who wants to be told, until leave.
func (p *peers) join() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	if p.later != nil {
		p.later.Stop()
		p.later = nil
	}
	p.listen()
}

func (p *peers) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 && p.listener != nil && p.later == nil {
		p.later = time.AfterFunc(linger, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.users == 0 {
				p.unlisten()
			}
		})
	}
}

// heard reports whether others can tell this handle something, and whether some
// may not know that yet. It listens again if its socket was removed, or could not
// be made before.
func (p *peers) heard() (ok, recent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		if _, err := os.Lstat(filepath.Join(p.folder, p.name)); errors.Is(err, fs.ErrNotExist) {
			p.unlisten()
		}
	}
	if time.Since(p.tried) > tryInterval {
		p.listen()
	}
	ok = p.listener != nil
	return ok, ok && time.Since(p.tried) < newSocket
}

// listen makes the socket of this handle, if that is possible. mu is held, as it
// is for all that follow but dial, accept and receive.
func (p *peers) listen() {
	if p.listener != nil || p.closed {
		return
	}
	p.tried = time.Now()
	for range 3 {
		err := makePeerFolder(p.folder, p.s.file)
		if err == nil {
			err = p.makeSocket()
		}
		if !errors.Is(err, fs.ErrNotExist) { // one that left has just removed the folder
			return
		}
	}
}

func (p *peers) makeSocket() error {
	if err := p.openFolder(); err != nil {
		return err
	}
	p.name = rand.Text()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.address(p.open, p.name), Net: "unix"})
	if err != nil {
		os.Remove(p.folder) // if it is empty
		return err
	}
	listener.SetUnlinkOnClose(false) // its address may depend on p.open
	if err := likeDatabase(filepath.Join(p.folder, p.name), p.s.file, 0); err != nil {
		p.remove(listener)
		return err
	}
	p.listener = listener
	p.running.Go(func() { p.accept(listener) })
	return nil
}

// unlisten gives up the socket of this handle.
func (p *peers) unlisten() {
	if p.listener != nil {
		p.remove(p.listener)
		p.listener = nil
	}
	for conn := range p.from {
		conn.Close()
	}
}

// remove removes the socket, and the folder if it was the last one.
func (p *peers) remove(listener *net.UnixListener) {
	os.Remove(filepath.Join(p.folder, p.name))
	listener.Close()
	os.Remove(p.folder)
}

// openFolder opens the folder anew, if it is one to be trusted.
func (p *peers) openFolder() error {
	if p.open != nil {
		p.open.Close()
	}
	var err error
	p.open, err = openPeerFolder(p.folder, p.s.file)
	return err
}

// address returns the address of a socket in the folder, which is open.
func (p *peers) address(open *os.File, name string) string {
	if path := filepath.Join(p.folder, name); len(path) <= maxSocketPath {
		return path
	}
	return shortPath(open, name)
}

// connectNew connects to the handles that have come since the last call.
func (p *peers) connectNew() {
	now := time.Now()
	if now.Sub(p.looked) < lookPace {
		return
	}
	p.looked = now
	at, err := stampOf(p.folder)
	if err != nil || at == p.stamp && at.settled || p.closed {
		return
	}
	p.stamp = at
	if err := p.openFolder(); err != nil {
		return
	}
	found, err := p.open.ReadDir(-1)
	if err != nil {
		return
	}
	for _, socket := range found {
		if _, known := p.to[socket.Name()]; !known && socket.Name() != p.name {
			p.connect(socket)
		}
	}
}

// stamp tells of a change to a folder without reading it.
type stamp struct {
	modified time.Time
	settled  bool // a change after it has another time
}

// clockGrain is longer than the clock of a file system stands still.
const clockGrain = 50 * time.Millisecond

func stampOf(folder string) (stamp, error) {
	now := time.Now()
	info, err := os.Lstat(folder)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), now.Sub(info.ModTime()) > clockGrain}, nil
}

// connect tells another handle things from now on, when it is connected.
func (p *peers) connect(socket fs.DirEntry) {
	to := newPeer()
	p.to[socket.Name()] = to
	p.running.Go(func() {
		if conn, err := p.dial(socket); err == nil {
			to.send(conn)
			conn.Close()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.to, socket.Name())
	})
}

// dial connects to the socket of another handle. mu is not held.
func (p *peers) dial(socket fs.DirEntry) (net.Conn, error) {
	open, err := openPeerFolder(p.folder, p.s.file)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	conn, err := net.DialTimeout("unix", p.address(open, socket.Name()), connectTimeout)
	if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := socket.Info(); err == nil && time.Since(info.ModTime()) > staleSocket {
			os.Remove(filepath.Join(p.folder, socket.Name())) // of a process that was killed
			os.Remove(p.folder)                               // if it was the last one
		}
	}
	return conn, err
}

// accept takes connections of others until the listener is closed.
func (p *peers) accept(listener *net.UnixListener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for example
			time.Sleep(connectTimeout)
			continue
		}
		p.mu.Lock()
		if p.listener != listener || len(p.from) >= maxPeers {
			conn.Close()
		} else {
			p.from[conn] = struct{}{}
			p.running.Go(func() { p.receive(conn) })
		}
		p.mu.Unlock()
	}
}

// receive passes on what another handle tells until one of both is gone.
func (p *peers) receive(conn net.Conn) {
	defer func() {
		conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.from, conn)
	}()
	r := bufio.NewReaderSize(conn, 16<<10)
	for {
		m, err := readPeerMessage(r)
		if err != nil {
			return
		}
		p.told.Add(1)
		switch m.kind {
		case wakeOne:
			p.s.Wake(m.name)
		case wakeEvery:
			p.s.WakeAll()
		case castOne:
			_ = p.s.Hub.Cast(context.Background(), m.name, m.body) // unless the store is closed
		}
	}
}

// wake tells all others which journals and cells a batch has written.
func (p *peers) wake(batch []*request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connectNew()
	for _, to := range p.to {
		to.wake(batch)
	}
}

// cast sends a message to the listeners of all others.
func (p *peers) cast(topic string, message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connectNew()
	for _, to := range p.to {
		to.cast(topic, message)
	}
}

// close ends all connections, after what was to be said on them.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	for _, to := range p.to {
		to.close()
	}
	if p.later != nil {
		p.later.Stop()
	}
	p.unlisten()
	if p.open != nil {
		p.open.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
