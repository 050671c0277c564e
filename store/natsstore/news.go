package natsstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure/store"
)

// news tells other handles what this one has written, and hears what they tell. It is
// sent after a write was acknowledged: someone who reads because of it sees the write.
// It may be lost, as polling finds what was not told.
type news struct {
	s     *Store
	id    []byte // of this handle, which does not need its own news
	once  sync.Once
	mu    sync.Mutex
	ended bool
	sub   *nats.Subscription
	polls sync.WaitGroup
}

func (n *news) init(s *Store) { n.s, n.id = s, []byte(rand.Text()[:16]) }

// wrote tells of a journal or cell that was written.
func (s *Store) wrote(name string) {
	s.Wake(name)
	_ = s.nc.Publish(s.prefix+".n", append(s.news.id[:len(s.news.id):len(s.news.id)], name...)) // lost
}

// start lets the handle hear from now on.
func (n *news) start() {
	n.once.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ended {
			return
		}
		n.sub, _ = n.s.nc.Subscribe(n.s.prefix+".n", func(m *nats.Msg) {
			if len(m.Data) > len(n.id) && !bytes.Equal(m.Data[:len(n.id)], n.id) {
				n.s.Wake(string(m.Data[len(n.id):]))
			}
		}) // without it, polling does
		n.polls.Go(n.poll)
	})
}

// end stops hearing and polling.
func (n *news) end() {
	n.mu.Lock()
	n.ended = true
	if n.sub != nil {
		_ = n.sub.Unsubscribe() // the connection may be gone
	}
	n.mu.Unlock()
	n.polls.Wait()
}

// pollPace is the time between two looks at the stream, for writes whose news were
// lost. Tests change it.
var pollPace = time.Second

// poll looks whether the stream has a new message until the store is closed.
func (n *news) poll() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for seen := uint64(0); ; wait.Reset(pollPace) {
		select {
		case <-n.s.life.Done():
			return
		case <-wait.C:
		}
		if !n.s.Watching() {
			continue
		}
		call, cancel := n.s.call(n.s.life)
		info, err := n.s.stream.Info(call)
		cancel()
		if err == nil && info.State.LastSeq != seen {
			n.s.WakeAll()
			seen = info.State.LastSeq
		}
	}
}

// Watch implements store.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		s.news.start()
		for range s.Hub.Watch(ctx, prefix) {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// topic returns the subject of a topic, which may have any length.
func (s *Store) topic(topic string) string {
	sum := sha256.Sum256([]byte(topic))
	return s.prefix + ".m." + hex.EncodeToString(sum[:16])
}

// Cast implements store.Caster. The server carries the message to all handles.
func (s *Store) Cast(ctx context.Context, topic string, message []byte) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if int64(len(message)) > s.nc.MaxPayload() {
		return fmt.Errorf("%w: natsstore: the message has %d bytes; the server's max_payload is %d", store.ErrTooLarge, len(message), s.nc.MaxPayload())
	}
	return s.failed(ctx, "cast to", s.nc.Publish(s.topic(topic), message))
}

// Hear implements store.Caster.
func (s *Store) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	var mu sync.Mutex
	over := s.usable(ctx) != nil
	sub, err := s.nc.Subscribe(s.topic(topic), func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if !over && s.usable(ctx) == nil {
			hear(m.Data)
		}
	})
	s.Hub.Hear(ctx, topic, func([]byte) {}) // until ctx or the store ends
	mu.Lock()
	over = true
	mu.Unlock()
	if err == nil {
		_ = sub.Unsubscribe()
	}
}
