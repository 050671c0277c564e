package sqlitestore

import (
	"context"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// maxReaders bounds the connections that read at the same time.
const maxReaders = 4

// readers are connections that read, opened when they are needed.
type readers struct {
	s     *Store
	turns chan struct{} // holds one for each that reads

	mu   sync.Mutex
	idle []*conn // the last used last, its pages are the freshest
}

func newReaders(s *Store) *readers {
	return &readers{s: s, turns: make(chan struct{}, maxReaders)}
}

// do runs read on a connection and one snapshot, again while another process
// is in its way. A read is short: its snapshot keeps the WAL from being
// emptied.
func (p *readers) do(ctx context.Context, read func(*conn) error) error {
	if err := p.s.usable(ctx); err != nil {
		return err
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.s.closing:
		return store.ErrClosed
	}
	c, err := p.get(ctx)
	if err != nil {
		return err
	}
	defer p.put(c)
	err = p.s.retry(ctx, time.Now(), func() error {
		defer c.rollback()
		c.interruptible(ctx)
		defer c.interruptible(context.Background()) // or the rollback would be interrupted too
		if err := c.exec("BEGIN"); err != nil {
			return err
		}
		return read(c)
	})
	if ctx.Err() != nil && code(err) == sqlite3.INTERRUPT {
		return ctx.Err()
	}
	return err
}

func (p *readers) get(ctx context.Context) (*conn, error) {
	if c := p.take(); c != nil {
		return c, nil
	}
	return p.s.openReader(ctx) // may wait for another process, without the lock
}

func (p *readers) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c
}

func (p *readers) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// close waits for reads under way and closes the connections. The store is
// closing: nobody gets a turn after it.
func (p *readers) close() {
	for range maxReaders {
		p.turns <- struct{}{}
	}
	for _, c := range p.idle {
		c.close()
	}
}
