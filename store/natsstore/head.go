package natsstore

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// A head is the end of a journal.
type head struct {
	place           // zero if there is no journal
	index   []place // of the appends before the last one, see appended
	dropped bool
}

// next returns the index of an append after h.
func (h head) next() []place {
	if h.at == 0 {
		return nil
	}
	return append([]place{h.place}, h.index[:min(len(h.index), maxIndex-1)]...)
}

// maxHeads bounds the heads that a handle remembers.
const maxHeads = 4096

// heads are those that this handle has written. They may be outdated: the server then
// refuses an append after one.
type heads struct {
	mu  sync.Mutex
	all map[string]head
}

func (c *heads) get(journal string) (head, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.all[journal]
	return h, ok
}

func (c *heads) put(journal string, h head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]head{}
	}
	if _, known := c.all[journal]; !known && len(c.all) >= maxHeads {
		for other := range c.all { // any
			delete(c.all, other)
			break
		}
	}
	c.all[journal] = h
}

func (c *heads) forget(journal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, journal)
}

// load asks the leader of the stream for the head of a journal, and returns it with
// its append, which is nil if there is none. After ErrCorrupt the head has its place
// in the stream.
func (s *Store) load(ctx context.Context, journal string) (head, *appended, error) {
	subject := s.subject(kindJournal, journal)
	m, err := s.getLast(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return head{}, nil, nil
	}
	if err != nil {
		return head{}, nil, err
	}
	h := head{place: place{at: m.Sequence}}
	kind, body, err := unseal(subject, m.Data)
	if err == nil && kind == isDropped {
		h.dropped = true
		return h, nil, nil
	}
	var a *appended
	if err == nil {
		a, err = decodeAppend(body)
	}
	if err == nil && kind != isAppend {
		err = &damage{"the message is not an append"}
	}
	if err != nil {
		return h, nil, s.corrupt(journal, 1, m.Sequence, err)
	}
	h.last, h.index = a.last(), a.index
	return h, a, nil
}

// corrupt returns the error of a message of a journal that cannot be used.
func (s *Store) corrupt(journal string, seq, at uint64, err error) error {
	d, ok := errors.AsType[*damage](err)
	if !ok {
		return err
	}
	return &store.CorruptError{Journal: journal, Seq: seq, Where: s.where(at), Reason: d.reason}
}
