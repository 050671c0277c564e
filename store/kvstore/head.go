package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure/store"
)

// head is what the head of a journal holds. Without a version there is no such
// key, and the journal was never written.
type head struct {
	version store.Version
	dropped bool
	start   uint64 // of the newest batch
	last    uint64
	batch   []byte // the newest batch, encoded; never changed
}

// The first byte of a head's body.
const (
	headLive    = 'L'
	headDropped = 'D'
)

// head returns the head of a journal as the engine has it. With *damage
// comes its version, so that it can be overwritten.
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
	case len(body) > 1 && body[0] == headLive:
		b, err := decodeBatch(key, body[1:])
		if err != nil {
			return head{}, err
		}
		return head{start: b.start, last: b.last(), batch: body[1:]}, nil
	}
	return head{}, &damage{key, "the head is not well formed"}
}

// load returns the head of a journal that can be appended to or read:
// ErrDropped if it is dropped, and ErrCorrupt if it is damaged, or lost with
// batches left behind.
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
		// Heads are never deleted, so either it is lost or the journal
		// began just now.
		if h, err = s.head(ctx, journal); err != nil || h.version != "" {
			return s.load(ctx, journal)
		}
		return head{}, s.located(ctx, journal, &damage{headKey(journal), "the head is lost"})
	}
	return head{}, nil
}

// headCache keeps the heads that this handle wrote, so that its next append
// needs not get them. A head in it may be outdated, which the engine finds out
// by its version.
type headCache struct {
	mu    sync.Mutex
	heads map[string]head
	size  int
}

// The sizes of the cache: all of it, and what a head takes besides its batch.
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

// remove needs the lock.
func (c *headCache) remove(journal string) {
	if h, ok := c.heads[journal]; ok {
		delete(c.heads, journal)
		c.size -= h.size()
	}
}
