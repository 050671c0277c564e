package feed

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/threads"
)

// Changes finds what has changed in the list of a tenant's threads, and reads only
// that: threads are listed by status and the time of their last change, so those that
// have changed since the last look come first. Threads that came back from the archive,
// with the times that they had, are listed by when they did. Now and then it reads all
// of them, in case that the clock of another node is wrong.
type Changes[T any] struct {
	Tenant *threads.Tenant
	// List yields the threads that a query selects, after a cursor unless that is "".
	List func(ctx context.Context, q threads.Query, after string) iter.Seq2[T, error]
	// Cursor returns a thread's cursor, in a list of any order.
	Cursor func(T) string
	// Moved reports whether a thread has moved to another store, as all of them
	// do at once.
	Moved func(T) bool

	known  map[string]T // by the cursor in the order of creation
	odd    int          // cells of threads that are not known, such as of starts that were cut off
	begun  int64        // the last look, by the wall clock
	again  time.Time    // when to read all of them
	moving bool         // the store has moved, or is about to
}

const (
	clocks   = 2 * time.Minute // by which the clocks of nodes may differ
	fullLook = 15 * time.Minute
	fullRest = 50 // times as long as a look at all threads takes, there is none
)

// Look calls gone with the threads that are no longer there, and then changed with
// those that may have changed, which was is nil for if they are new.
func (c *Changes[T]) Look(ctx context.Context, changed func(was *T, now T), gone func(T)) error {
	begun, start := clock.Micros(), time.Now()
	full := c.known == nil || !start.Before(c.again) || c.moving
	found := map[string]T{}
	damaged := false
	list := func(q threads.Query) error {
		for t, err := range c.List(ctx, q, "") {
			if errors.Is(err, perdure.ErrCorrupt) {
				damaged = true // such threads may still exist
				return nil
			}
			if err != nil {
				return err
			}
			found[threads.ByCreation(c.Cursor(t))] = t
		}
		return ctx.Err()
	}
	queries := []threads.Query{{}}
	if !full {
		since := max(1, c.begun-clocks.Microseconds())
		queries = nil
		for cursor, err := range c.Tenant.Restored(ctx, since) {
			_, known := c.known[cursor]
			if err == nil && !known {
				err = c.find(ctx, cursor, found)
			}
			if err != nil && !errors.Is(err, perdure.ErrCorrupt) {
				return err
			}
		}
		for _, status := range threads.FacetStatuses {
			queries = append(queries, threads.Query{Status: &status, Since: since})
		}
	}
	for _, q := range queries {
		if err := list(q); err != nil {
			return err
		}
	}
	left, err := c.left(ctx, found, full)
	if err != nil {
		return err
	}
	if !full && c.hasMoved(ctx) {
		c.moving = true
		return c.Look(ctx, changed, gone)
	}
	for cursor, t := range left {
		if !damaged {
			delete(c.known, cursor)
			gone(t)
		}
	}
	if c.known == nil {
		c.known = make(map[string]T, len(found))
	}
	for cursor, t := range found {
		if was, ok := c.known[cursor]; ok {
			changed(&was, t)
		} else {
			changed(nil, t)
		}
		c.known[cursor] = t
	}
	c.begun = begun
	if full {
		n, err := c.Tenant.CountCells(ctx)
		if err != nil {
			return err
		}
		c.odd, c.moving, c.again = n-len(c.known), false, time.Now().Add(max(fullLook, fullRest*time.Since(start)))
	}
	return nil
}

// left returns the known threads that are no longer there. It adds others that it comes
// across, such as those of a node whose clock is wrong, to those that were found.
func (c *Changes[T]) left(ctx context.Context, found map[string]T, full bool) (map[string]T, error) {
	left := map[string]T{}
	if full {
		for cursor, t := range c.known {
			if _, ok := found[cursor]; !ok {
				left[cursor] = t
			}
		}
		return left, nil
	}
	fresh := 0
	for cursor := range found {
		if _, ok := c.known[cursor]; !ok {
			fresh++
		}
	}
	n, err := c.Tenant.CountCells(ctx)
	if err != nil || n-fresh-len(c.known) == c.odd {
		return left, err
	}
	there := make(map[string]bool, n)
	odd := 0
	for cursor, err := range c.Tenant.Cursors(ctx) {
		if err != nil {
			return nil, err
		}
		there[cursor] = true
		_, known := c.known[cursor]
		if _, ok := found[cursor]; known || ok {
			continue
		}
		if err := c.find(ctx, cursor, found); err != nil {
			return nil, err
		}
		if _, ok := found[cursor]; !ok {
			odd++
		}
	}
	for cursor, t := range c.known {
		if !there[cursor] {
			left[cursor] = t
		}
	}
	c.odd = odd
	return left, nil
}

// find adds the thread at a cursor to those that were found, unless it has not begun.
func (c *Changes[T]) find(ctx context.Context, cursor string, found map[string]T) error {
	for t, err := range c.List(ctx, threads.Query{}, cursor[:len(cursor)-1]) {
		if err != nil && !errors.Is(err, perdure.ErrCorrupt) {
			return err
		}
		if err == nil && threads.ByCreation(c.Cursor(t)) == cursor {
			found[cursor] = t
		}
		return nil
	}
	return ctx.Err()
}

// hasMoved reports whether the newest thread has moved since it was last seen.
func (c *Changes[T]) hasMoved(ctx context.Context) bool {
	for t, err := range c.List(ctx, threads.Query{}, "") {
		was, ok := c.known[threads.ByCreation(c.Cursor(t))]
		return err == nil && ok && c.Moved(was) != c.Moved(t)
	}
	return false
}
