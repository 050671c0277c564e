package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// news tells other handles what this one has written and cast, and hears what they
// tell. It uses notifications, which have no part in the commits they tell of:
// a commit with one takes a lock of the whole database. They are lossy, as polling
// finds what was not told.
type news struct {
	s      *Store
	id     string          // of this handle, which does not need its own news
	listen *pgx.ConnConfig // nil if there is no connection that can listen
	gate   *gate           // of the server that it connects to

	kick chan struct{} // holds one: there is something to tell
	join chan struct{} // holds one: there is another transaction in open
	pace chan struct{} // holds one: up has changed, and with it how often to poll

	mu    sync.Mutex
	names map[string]struct{} // to tell
	casts [][]byte            // to tell, see castRecord
	size  int                 // of casts
	open  map[string][]string // what transactions of the program have written, by their ids

	began time.Time
	quiet atomic.Int64 // for how long after that nothing needs to be told: nobody listened lately
	fresh atomic.Bool  // somebody has begun to listen since the last look

	once, attended sync.Once

	known chan struct{} // closed when all others have had time to see that this handle listens
	up    atomic.Int64  // when the connection began to listen; 0 while there is none
	why   atomic.Value  // a string: why there is none, as the last attempt told
	pid   atomic.Uint32 // of its backend
	ended sync.WaitGroup
}

const (
	tellPace = 2 * time.Millisecond // between two notifications of a handle

	// PostgreSQL allows 8000 bytes, 6000 before they are text.
	maxNote = 5900

	maxNames = 1000    // beyond which a handle tells to look at everything
	maxCasts = 1 << 20 // beyond which messages are lost
)

// presencePace is the pause between two looks whether anyone listens.
var presencePace = 250 * time.Millisecond

// The kinds of records in a notification.
const (
	toldName = iota // of a journal or cell that was written
	toldAll         // anything may have been written
	toldCast        // a part of a message
	toldHere        // the sender has begun to listen; an older handle finds out by looking
)

func newNews(s *Store, listen *pgx.ConnConfig, g *gate) *news {
	n := &news{s: s, began: time.Now(), id: rand.Text()[:12], listen: listen, gate: g, kick: make(chan struct{}, 1), join: make(chan struct{}, 1), pace: make(chan struct{}, 1), known: make(chan struct{}), names: map[string]struct{}{}, open: map[string][]string{}}
	n.ended.Go(n.tell)
	n.ended.Go(n.follow)
	return n
}

// channel is the name by which handles on this schema find each other.
func (n *news) channel() string { return "perdure_" + n.s.schema }

// presence returns the advisory lock that everyone who listens shares.
func (n *news) presence() (class, object int32) {
	h := fnv.New64a()
	h.Write([]byte("perdure listens " + n.s.schema))
	sum := h.Sum64()
	return int32(sum >> 33), int32(sum & 0x7fffffff)
}

// wrote tells of journals and cells that were written.
func (n *news) wrote(names ...string) {
	if n.unheard() {
		return
	}
	n.mu.Lock()
	for _, name := range names {
		if len(n.names) <= maxNames {
			n.names[name] = struct{}{}
		}
	}
	n.mu.Unlock()
	ring(n.kick)
}

// await tells of journals and cells once a transaction of the program is committed.
func (n *news) await(xid string, names []string) {
	n.mu.Lock()
	n.open[xid] = append(n.open[xid], names...)
	n.mu.Unlock()
	ring(n.join)
}

// follow asks what became of the program's transactions, soon after they were
// joined and then less often. A notification in them would be simpler, but their
// commits would wait for each other.
func (n *news) follow() {
	const least, most = 2 * time.Millisecond, 100 * time.Millisecond
	var xids []string
	for pause := least; ; pause = min(2*pause, most) {
		var wait <-chan time.Time
		if len(xids) > 0 {
			wait = time.After(pause)
		}
		select {
		case <-n.s.life.Done():
			return
		case <-n.join:
			pause = least
			time.Sleep(pause) // most programs commit at once
		case <-wait:
		}
		n.mu.Lock()
		xids = slices.Collect(maps.Keys(n.open))
		n.mu.Unlock()
		if len(xids) == 0 {
			continue
		}
		_ = n.s.query(n.s.life, "SELECT xid, coalesce(pg_xact_status(xid::xid8), '') FROM unnest($1::text[]) xid", func(scan func(...any) error) error {
			var xid, status string
			if err := scan(&xid, &status); err != nil || status == "in progress" {
				return err
			}
			n.mu.Lock()
			names := n.open[xid]
			delete(n.open, xid)
			n.mu.Unlock()
			if status == "committed" {
				for _, name := range names {
					n.s.Wake(name)
				}
				n.wrote(names...)
			}
			return nil
		}, xids) // after an error they are asked for again
	}
}

// unheard reports whether nobody listened at the last look, which was not long ago.
func (n *news) unheard() bool { return int64(time.Since(n.began)) < n.quiet.Load() }

// cast tells of a message.
func (n *news) cast(topic string, message []byte) {
	if n.unheard() {
		return
	}
	data := binary.AppendUvarint(nil, uint64(len(topic)))
	data = append(append(data, topic...), message...)
	n.mu.Lock()
	if n.size+len(data) <= maxCasts {
		n.casts = append(n.casts, data)
		n.size += len(data)
	}
	n.mu.Unlock()
	ring(n.kick)
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// tell sends what there is to tell, while somebody listens.
func (n *news) tell() {
	var asked time.Time
	var present bool
	var count uint64
	for {
		select {
		case <-n.s.life.Done():
			return
		case <-n.kick:
		}
		pause := tellPace
		var err error
		if n.fresh.Swap(false) || time.Since(asked) > presencePace {
			asked = time.Now()
			if present, err = n.anyone(); err == nil && !present {
				n.quiet.Store(int64(asked.Sub(n.began) + presencePace))
			}
		}
		n.mu.Lock()
		names, casts := n.names, n.casts
		n.names, n.casts, n.size = map[string]struct{}{}, nil, 0
		n.mu.Unlock()
		if err == nil && present {
			notes := n.pack(names, casts, &count)
			err = n.s.query(n.s.life, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, note) FROM unnest($2::text[]) note", nil, n.channel(), notes)
		}
		if err != nil { // names are told later, and messages are lost
			n.mu.Lock()
			maps.Copy(n.names, names)
			n.mu.Unlock()
			asked, pause = time.Time{}, presencePace
			ring(n.kick)
		}
		select {
		case <-n.s.life.Done():
			return
		case <-time.After(pause):
		}
	}
}

// anyone reports whether another handle listens. One that begins just after says so
// to those who listen; others look again after a while, until which it polls often.
func (n *news) anyone() (bool, error) {
	class, object := n.presence()
	var others int
	err := n.s.query(n.s.life, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = $1 AND objid::bigint = $2 AND objsubid = 2 AND granted AND pid <> $3 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
		func(scan func(...any) error) error { return scan(&others) }, int64(class), int64(object), int32(n.pid.Load()))
	return others > 0, err
}

// pack puts records into notifications. Count numbers these, so that one that is
// lost is noticed.
func (n *news) pack(names map[string]struct{}, casts [][]byte, count *uint64) (notes []string) {
	var note []byte
	flush := func() {
		if len(note) > 0 {
			*count++
			head := binary.AppendUvarint([]byte(n.id), *count)
			notes = append(notes, base64.RawStdEncoding.EncodeToString(append(head, note...)))
			note = note[:0]
		}
	}
	add := func(kind, flags byte, data []byte) {
		if len(note)+len(data)+16 > maxNote {
			flush()
		}
		note = append(note, kind, flags)
		note = binary.AppendUvarint(note, uint64(len(data)))
		note = append(note, data...)
	}
	if len(names) > maxNames {
		add(toldAll, 0, nil)
	} else {
		for name := range names {
			add(toldName, 0, []byte(name))
		}
	}
	for _, data := range casts {
		for flags := byte(firstPart); ; flags = 0 {
			part := data[:min(len(data), maxNote-64)]
			if data = data[len(part):]; len(data) == 0 {
				flags |= lastPart
			}
			if add(toldCast, flags, part); flags&lastPart != 0 {
				break
			}
		}
	}
	flush()
	return notes
}

// The flags of a part of a message.
const (
	firstPart = 1 << iota
	lastPart
)

// start lets the handle hear from now on.
func (n *news) start() {
	n.once.Do(func() {
		n.s.writer.mu.Lock() // Close waits for what has begun
		defer n.s.writer.mu.Unlock()
		if n.s.writer.closed {
			return
		}
		n.ended.Go(n.poll)
		if n.listen != nil {
			n.ended.Go(n.hear)
		}
	})
}

// hear listens, and connects again after a failure.
func (n *news) hear() {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	for pause := least; n.s.life.Err() == nil; pause = min(2*pause, most) {
		if n.hearOnce(n.s.life) {
			pause = least
		}
		select {
		case <-n.s.life.Done():
		case <-time.After(pause):
		}
	}
}

// hearOnce listens on one connection until it fails, and reports whether it ever
// listened.
func (n *news) hearOnce(ctx context.Context) bool {
	bounded, cancel := n.s.call(ctx)
	defer cancel()
	c, err := n.gate.connect(bounded, n.listen.Copy())
	if err != nil {
		n.why.Store(n.s.failed("listen to", err).Error())
		return false
	}
	defer c.Close(bounded)
	_ = entered(c, nil)
	class, object := n.presence()
	if _, err := c.Exec(bounded, "LISTEN "+pgx.Identifier{n.channel()}.Sanitize()); err != nil {
		return false
	}
	if _, err := c.Exec(bounded, "SELECT pg_advisory_lock_shared($1, $2)", class, object); err != nil {
		return false
	}
	n.pid.Store(c.PgConn().PID())
	n.listens(time.Now().UnixNano())
	defer n.pid.Store(0)
	defer n.listens(0)
	n.s.WakeAll() // for what was told before
	// Those who saw that nobody listens look again after this time at the latest.
	time.AfterFunc(presencePace, n.beKnown)
	here := base64.RawStdEncoding.EncodeToString(append(binary.AppendUvarint([]byte(n.id), 0), toldHere, 0, 0))
	if _, err := c.Exec(bounded, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)", n.channel(), here); err != nil {
		return true
	}
	senders := map[string]*sender{}
	for {
		note, err := c.WaitForNotification(ctx)
		if err != nil {
			return true
		}
		n.told(senders, note.Payload)
	}
}

// listens notes since when the connection listens, 0 if it does not.
func (n *news) listens(since int64) {
	n.up.Store(since)
	ring(n.pace)
}

// deaf says why the handle does not listen, "" if it does, or nobody has asked it to.
func (n *news) deaf() string {
	if n.listen == nil {
		return "a pooler is between this process and the server, and the URL names no direct address"
	}
	if why, _ := n.why.Load().(string); n.up.Load() == 0 && why != "" {
		return "the server cannot be listened to: " + why
	}
	return ""
}

// beKnown ends the waiting of Attend.
func (n *news) beKnown() { n.attended.Do(func() { close(n.known) }) }

// sender is what is known of another handle.
type sender struct {
	count uint64 // of its last notification
	part  []byte // of a message whose rest is to come
	open  bool   // whether there is one
}

const maxSenders = 1000

// told reads a notification, and ignores one that it cannot read: others may use the
// channel.
func (n *news) told(senders map[string]*sender, payload string) {
	data, err := base64.RawStdEncoding.DecodeString(payload)
	if err != nil || len(data) < len(n.id) || string(data[:len(n.id)]) == n.id {
		return
	}
	id := string(data[:len(n.id)])
	count, k := binary.Uvarint(data[len(n.id):])
	if k <= 0 {
		return
	}
	data = data[len(n.id)+k:]
	if len(senders) >= maxSenders {
		clear(senders)
	}
	from := senders[id]
	if from == nil {
		from = &sender{}
		senders[id] = from
	}
	if count > 0 { // not from the connection that listens
		from.open = from.open && count == from.count+1
		from.count = count
	}
	for len(data) > 2 {
		kind, flags := data[0], data[1]
		size, k := binary.Uvarint(data[2:])
		if k <= 0 || size > uint64(len(data)-2-k) {
			return
		}
		body := data[2+k : 2+k+int(size)]
		data = data[2+k+int(size):]
		switch kind {
		case toldName:
			n.s.Wake(string(body))
		case toldAll:
			n.s.WakeAll()
		case toldCast:
			n.toldPart(from, flags, body)
		case toldHere:
			n.fresh.Store(true)
			n.quiet.Store(0)
		}
	}
}

// toldPart puts a message together and passes it on.
func (n *news) toldPart(from *sender, flags byte, body []byte) {
	if flags&firstPart != 0 {
		from.part, from.open = from.part[:0], true
	}
	if !from.open || len(from.part)+len(body) > maxCasts {
		from.open = false
		return
	}
	from.part = append(from.part, body...)
	if flags&lastPart == 0 {
		return
	}
	from.open = false
	size, k := binary.Uvarint(from.part)
	if k > 0 && size <= uint64(len(from.part)-k) {
		topic, message := from.part[k:k+int(size)], from.part[k+int(size):]
		_ = n.s.Hub.Cast(context.Background(), string(topic), message) // it fails when the store is closed
	}
}
