package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// news tells other handles what this one has written and cast, and hears what they
// tell, on a channel of the store. It has no part in the writes it tells of: one
// message tells of many. Messages may be lost, as polling finds what was not told.
type news struct {
	s    *Store
	id   string        // of this handle, which does not need its own news
	kick chan struct{} // holds one: there is something to tell
	pace chan struct{} // holds one: up has changed, and with it how often to poll

	mu    sync.Mutex
	names map[string]struct{} // to tell
	casts [][]byte            // to tell: the length of the topic, the topic, the message
	size  int                 // of casts

	began time.Time
	quiet atomic.Int64 // for how long after that nothing needs to be told: nobody listened lately

	once  sync.Once
	up    atomic.Int64 // when the handle began to listen; 0 while it does not
	ended sync.WaitGroup
}

const (
	idSize    = 12
	tellPace  = 2 * time.Millisecond   // between two messages of a handle
	quietTime = 250 * time.Millisecond // after a message that nobody heard
	pingPace  = 10 * time.Second       // on a connection that listens

	maxNames = 1000    // beyond which a handle tells to look at everything
	maxCasts = 1 << 20 // beyond which casts are lost
)

// The kinds of records in a message.
const (
	toldName = iota // of a journal or cell that was written
	toldAll         // anything may have been written
	toldCast
)

func newNews(s *Store) *news {
	n := &news{s: s, began: time.Now(), id: rand.Text()[:idSize], kick: make(chan struct{}, 1), pace: make(chan struct{}, 1), names: map[string]struct{}{}}
	n.ended.Go(n.tell)
	return n
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

// unheard reports whether nobody heard the last message, which was not long ago.
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

// tell sends what there is to tell.
func (n *news) tell() {
	for {
		select {
		case <-n.s.life.Done():
			return
		case <-n.kick:
		}
		message := n.message()
		own := int64(0)
		if n.up.Load() != 0 {
			own = 1
		}
		var heard int64
		err := n.s.call(n.s.life, "write to", func(ctx context.Context, c *redis.Client) (err error) {
			heard, err = c.SPublish(ctx, n.s.keys.news, message).Result()
			return err
		})
		if err != nil || heard <= own {
			n.quiet.Store(int64(time.Since(n.began) + quietTime))
		}
		select {
		case <-n.s.life.Done():
			return
		case <-time.After(tellPace):
		}
	}
}

// message takes what there is to tell.
func (n *news) message() []byte {
	n.mu.Lock()
	names, casts := n.names, n.casts
	n.names, n.casts, n.size = map[string]struct{}{}, nil, 0
	n.mu.Unlock()
	message := []byte(n.id)
	add := func(kind byte, data []byte) {
		message = binary.AppendUvarint(append(message, kind), uint64(len(data)))
		message = append(message, data...)
	}
	if len(names) > maxNames {
		add(toldAll, nil)
	} else {
		for name := range names {
			add(toldName, []byte(name))
		}
	}
	for _, data := range casts {
		add(toldCast, data)
	}
	return message
}

// start lets the handle hear from now on.
func (n *news) start() {
	n.once.Do(func() {
		n.s.writer.mu.Lock() // Close waits for what has begun
		defer n.s.writer.mu.Unlock()
		if n.s.writer.closed {
			return
		}
		n.ended.Go(n.poll)
		n.ended.Go(n.hear)
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := n.s.link.client()
	channel := c.SSubscribe(ctx, n.s.keys.news)
	defer channel.Close()
	defer context.AfterFunc(ctx, func() { channel.Close() })()
	go func() { // a connection without an end answers nothing
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(pingPace):
				_ = channel.Ping(ctx)
			}
		}
	}()
	defer n.listens(0)
	for {
		told, err := channel.ReceiveTimeout(ctx, 3*pingPace)
		if err != nil {
			n.s.link.redirect(c, err)
			return n.up.Load() != 0
		}
		switch told := told.(type) {
		case *redis.Subscription:
			n.listens(time.Now().UnixNano())
			n.s.WakeAll() // for what was told before
		case *redis.Message:
			n.told(told.Payload)
		}
	}
}

// listens notes since when the handle listens, 0 if it does not.
func (n *news) listens(since int64) {
	n.up.Store(since)
	ring(n.pace)
}

// told reads a message, and ignores what it cannot read: others may use the channel.
func (n *news) told(message string) {
	if len(message) < idSize || message[:idSize] == n.id {
		return
	}
	for data := []byte(message[idSize:]); len(data) > 1; {
		kind := data[0]
		size, k := binary.Uvarint(data[1:])
		if k <= 0 || size > uint64(len(data)-1-k) {
			return
		}
		body := data[1+k : 1+k+int(size)]
		data = data[1+k+int(size):]
		switch kind {
		case toldName:
			n.s.Wake(string(body))
		case toldAll:
			n.s.WakeAll()
		case toldCast:
			if size, k := binary.Uvarint(body); k > 0 && size <= uint64(len(body)-k) {
				topic, cast := body[k:k+int(size)], body[k+int(size):]
				_ = n.s.Hub.Cast(context.Background(), string(topic), cast) // it fails when the store is closed
			}
		}
	}
}
