package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure/store"
)

// head is the content of a journal's head. If it has no version there is no such
// key, and the journal was never written.
type head struct {
	version store.Version
	dropped bool
	open    bool   // the next append joins the batch instead of moving it
	start   uint64 // of the newest batch
	last    uint64
	batch   []byte // the newest batch, encoded; never changed
}

// The first byte of a head's body. Whether a head is open is written into it, and
// not left to the options of the next writer: if one writer moved a batch that
// another one adds to, two moved batches would hold the same entries.
const (
	headLive    = 'L'
	headOpen    = 'O'
	headDropped = 'D'
)

// tag returns the first byte of the body of a head that is not dropped.
func (h head) tag() []byte {
	if h.open {
		return []byte{headOpen}
	}
	return []byte{headLive}
}

// head returns the head of a journal as the engine has it. If it is *damage, its
// version is returned too, so that it can be overwritten.
func (s *Store) head(ctx context.Context, journal string) (head, error) {
	key := headKey(journal)
	cell, err := s.kv.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return head{}, nil
	}
	if err != nil {
		return head{}, fmt.Errorf("kvstore: get the head of journal %q: %w", journal, err)
	}
	h, err := decodeHead(key, cell.Value)
	h.version = cell.Version
	return h, err
}

func decodeHead(key string, value []byte) (head, error) {
	body, err := unframe(key, value)
	if err != nil {
		return head{}, err
	}
	switch {
	case len(body) == 1 && body[0] == headDropped:
		return head{dropped: true}, nil
	case len(body) > 1 && (body[0] == headLive || body[0] == headOpen):
		b, err := decodeBatch(key, body[1:])
		if err != nil {
			return head{}, err
		}
		return head{open: body[0] == headOpen, start: b.start, last: b.last(), batch: body[1:]}, nil
	}
	return head{}, &damage{key, "the head is not well formed"}
}

// load returns the head of a journal that can be appended to or read. It returns
// ErrDropped if the journal was dropped, and ErrCorrupt if the head is damaged, or
// lost while batches remain.
func (s *Store) load(ctx context.Context, journal string) (head, error) {
	h, err := s.head(ctx, journal)
	if err != nil {
		return head{}, s.located(ctx, journal, err)
	}
	if h.dropped {
		return head{}, store.WasDropped(journal)
	}
	if h.version != "" {
		return h, nil
	}
	for _, err := range s.kv.List(ctx, batchPrefix(journal), "") {
		if err != nil {
			return head{}, fmt.Errorf("kvstore: list the batches of journal %q: %w", journal, err)
		}
		// Heads are never deleted, so either it is lost or the journal was
		// created just now.
		if h, err = s.head(ctx, journal); err != nil || h.version != "" {
			return s.load(ctx, journal)
		}
		return head{}, s.located(ctx, journal, &damage{headKey(journal), "the head is lost"})
	}
	return head{}, nil
}

// headCache keeps the heads that this handle wrote, so that its next append need
// not get them. A cached head may be outdated; the engine then refuses its
// version.
type headCache struct {
	mu    sync.Mutex
	heads map[string]head
	size  int
}

// The maximum size of the cache, and the size of a head without its batch.
const (
	maxCache     = 8 << 20
	headOverhead = 512
)

func (h head) size() int { return headOverhead + len(h.batch) }

func (c *headCache) get(journal string) (head, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.heads[journal]
	return h, ok
}

func (c *headCache) put(journal string, h head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.heads[journal]
	if ok && old.last > h.last {
		return
	}
	c.remove(journal)
	for victim := range c.heads {
		if c.size+h.size() <= maxCache {
			break
		}
		c.remove(victim)
	}
	if c.heads == nil {
		c.heads = map[string]head{}
	}
	c.heads[journal] = h
	c.size += h.size()
}

func (c *headCache) forget(journal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(journal)
}

// remove must be called with the lock held.
func (c *headCache) remove(journal string) {
	if h, ok := c.heads[journal]; ok {
		delete(c.heads, journal)
		c.size -= h.size()
	}
}
