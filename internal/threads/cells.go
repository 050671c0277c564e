package threads

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// span is a part of a facet, from first to last, each "" for no bound.
type span struct{ facet, first, last string }

// spans returns the parts of facets that hold all that the query selects, and the
// order of their keys.
func (r *Tenant) spans(q Query) (order string, spans []span) {
	order, facets := r.facets(q)
	for _, facet := range facets {
		spans = append(spans, span{facet: facet})
	}
	s := &spans[0]
	switch all, user := r.All.facet(r.Part, "all"), r.All.facet(r.Part, "user", q.User); {
	case order == byChange:
		if q.Before != 0 {
			s.first = flip(minuteOf(q.Before))
		}
		if q.Since != 0 {
			s.last = flip(minuteOf(q.Since)) + "~"
		}
	case (q.CreatedSince > 0 || q.CreatedBefore > 0) && (s.facet == all || s.facet == user) && !r.All.bare:
		// The name of a thread says when it was created, except for strays.
		if q.CreatedBefore > 0 {
			s.first = newestAt(q.CreatedBefore)
		}
		if q.CreatedSince > 0 {
			s.last = newestAt(q.CreatedSince-strayFrom) + "~"
		}
		spans = append(spans, span{facet: r.All.facet(r.Part, "strays")})
	}
	return order, spans
}

// The name of a thread says when it was created: its first entry has the same time, if it
// comes within mostLate microseconds. A thread that was created before the time in its
// name, or by strayFrom microseconds after it, is a stray: imports, threads whose first
// writer died or has a clock that is ahead, and slow ones of earlier versions.
const (
	mostLate  = int64(10 * time.Second / time.Microsecond)
	strayFrom = int64(time.Second / time.Microsecond)
)

// isStray reports whether the name of a thread tells little of when it was created.
func isStray(incarnation string, created int64) bool {
	off := created - nameTime(incarnation)
	return off >= strayFrom || off < 0
}

// createdAt returns the time of creation of a thread that begins now.
func createdAt(name string) int64 {
	_, incarnation, _ := strings.Cut(name, ".")
	named, now := nameTime(incarnation), clock.Micros()
	if named <= now && now-named < mostLate {
		return named
	}
	return now
}

// nameTime returns the time in a name, in microseconds.
func nameTime(incarnation string) int64 {
	b, err := Base32.DecodeString(incarnation[:min(nameDigits, len(incarnation))])
	if err != nil || len(b) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b) >> 8)
}

const (
	nameDigits = 16 // of an incarnation that hold its time, and some more
	fullDigits = 11 // that hold nothing else
)

// newestAt returns what the keys of threads with names of a time begin with, in facets
// that have newer ones first.
func newestAt(micros int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(max(micros, 0))<<8)
	return flip(Base32.EncodeToString(b)[:fullDigits])
}

// facetLen returns the length of the facet in a key.
func facetLen(key string) int { return strings.LastIndexByte(key, '/') + 1 }

// indexCells yields the keys of spans after a cursor, in groups that grow.
func (c *Threads) indexCells(ctx context.Context, spans []span, cursor string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		var group []string
		size := 4
		for key, err := range c.mergedCells(ctx, spans, cursor) {
			if err != nil {
				if len(group) == 0 || yield(group, nil) {
					yield(nil, err)
				}
				return
			}
			if group = append(group, key); len(group) == size {
				if !yield(group, nil) {
					return
				}
				group, size = group[:0], min(2*size, 64)
			}
		}
		if len(group) > 0 {
			yield(group, nil)
		}
	}
}

// mergedCells yields the keys of spans in the order of what follows the facet,
// once for each thread.
func (c *Threads) mergedCells(ctx context.Context, spans []span, cursor string) iter.Seq2[string, error] {
	if len(spans) == 1 {
		return c.spanCells(ctx, spans[0], cursor)
	}
	return func(yield func(string, error) bool) {
		next := make([]func() (string, error, bool), len(spans))
		heads := make([]string, len(spans)) // "" at the end of a facet
		var failed error
		advance := func(i int) bool {
			key, err, _ := next[i]()
			if failed = cmp.Or(failed, err); failed != nil && !IsDamage(failed) {
				yield("", failed)
				return false
			}
			heads[i] = key // "" of a damaged facet too, whose damage is reported last
			return true
		}
		for i, sp := range spans {
			var stop func()
			next[i], stop = iter.Pull2(c.spanCells(ctx, sp, cursor))
			defer stop()
			if !advance(i) {
				return
			}
		}
		for last := ""; ; {
			first := -1
			for i, key := range heads {
				if key != "" && (first < 0 || key[facetLen(key):] < heads[first][facetLen(heads[first]):]) {
					first = i
				}
			}
			if first < 0 {
				if failed != nil {
					yield("", failed)
				}
				return
			}
			key := heads[first]
			if rest := key[facetLen(key):]; rest != last {
				last = rest
				if !yield(key, nil) {
					return
				}
			}
			if !advance(first) {
				return
			}
		}
	}
}

// spanCells yields the keys of a span after a cursor.
func (c *Threads) spanCells(ctx context.Context, sp span, cursor string) iter.Seq2[string, error] {
	if sp.last == "" {
		return c.facetCells(ctx, sp.facet, max(cursor, sp.first))
	}
	return func(yield func(string, error) bool) {
		for key, err := range c.facetCells(ctx, sp.facet, max(cursor, sp.first)) {
			if err == nil && key[facetLen(key):] > sp.last || !yield(key, err) {
				return
			}
		}
	}
}

// facetCells yields the keys of a facet after a cursor, and those of damaged cells,
// which it rewrites, last.
func (c *Threads) facetCells(ctx context.Context, facet, cursor string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if c.bare {
			part, _, _ := strings.Cut(strings.TrimPrefix(facet, indexPrefix), "/")
			for cell, err := range c.Store.List(ctx, JournalKey(part)+".", "") {
				if !yield(c.allKey(strings.TrimPrefix(cell.Key, JournalKey(""))), err) {
					return
				}
			}
			return
		}
		after := ""
		if cursor != "" {
			after = facet + cursor
		}
		var mended []string
		for {
			var damage *store.CorruptError
			for cell, err := range c.Store.List(ctx, facet, after) {
				if errors.As(err, &damage) {
					break
				}
				if err != nil {
					yield("", err)
					return
				}
				if len(mended) == 0 && !yield(cell.Key, nil) {
					return
				}
			}
			if damage == nil {
				break
			}
			_, err := c.Store.Put(ctx, damage.Cell, indexMark, damage.Version)
			if err != nil && !errors.Is(err, store.ErrConflict) || slices.Contains(mended, damage.Cell) {
				yield("", fmt.Errorf("%w: %w", fault.ErrCorrupt, damage))
				return
			}
			mended = append(mended, damage.Cell)
		}
		for _, key := range mended {
			if !yield(key, nil) {
				return
			}
		}
	}
}
