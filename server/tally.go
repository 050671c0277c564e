package server

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server/internal/feed"
)

// portion is what a thread adds to the counts of its tenant.
type portion struct {
	cursor string
	moved  bool
	status string
	runs   int
	bytes  int64
	asks   int
	spent  map[string]int64
}

func portionOf(s *threads.Summary, cursor string) portion {
	return portion{cursor, s.Moved != "", cmp.Or(string(s.Status), string(perdure.Idle)), s.Runs, s.Bytes, s.Asks, s.Spent}
}

// add adds a thread to the counts, or takes it away.
func (n *count) add(t *portion, sign int) {
	n.threads += sign
	n.runs += sign * t.runs
	n.bytes += int64(sign) * t.bytes
	for unit, spent := range t.spent {
		n.spent[unit] += int64(sign) * spent
	}
	if t.moved { // nothing of it is to be done here
		n.statuses[kindMoved] += sign
		return
	}
	n.statuses[t.status] += sign
	n.asks += sign * t.asks
}

// tallies are the counts of tenants, which are brought up to date by what has changed.
type tallies struct {
	mu  sync.Mutex
	all map[string]*tally // by tenant
}

// tally is the count of a tenant.
type tally struct {
	turn    chan struct{} // full while someone counts
	changes feed.Changes[portion]
	sum     count
	used    time.Time // guarded by the mutex of tallies
}

// keepTally is how long a tally is kept that nobody asks for.
const keepTally = 10 * time.Minute

// tallyOf returns the tally of a tenant.
func (l *tallies) tallyOf(tenant *threads.Tenant) *tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.all, func(_ string, t *tally) bool { return now.Sub(t.used) > keepTally })
	t := l.all[tenant.Name]
	if t == nil {
		t = &tally{turn: make(chan struct{}, 1), sum: count{statuses: map[string]int{}, spent: map[string]int64{}}}
		t.changes = feed.Changes[portion]{Tenant: tenant, List: portionsOf(tenant), Cursor: func(t portion) string { return t.cursor }, Moved: func(t portion) bool { return t.moved }}
		if l.all == nil {
			l.all = map[string]*tally{}
		}
		l.all[tenant.Name] = t
	}
	t.used = now
	return t
}

func portionsOf(tenant *threads.Tenant) func(context.Context, threads.Query, string) iter.Seq2[portion, error] {
	return func(ctx context.Context, q threads.Query, after string) iter.Seq2[portion, error] {
		return func(yield func(portion, error) bool) {
			for s, err := range tenant.Select(ctx, q, after) {
				if !yield(portionOf(&s.Summary, s.Cursor), err) {
					return
				}
			}
		}
	}
}

// countThreads counts and sums what a runtime reaches, from the summaries of the threads
// that have changed since it was last asked. For a user it reads all of them.
func (l *tallies) countThreads(ctx context.Context, rt *perdure.Runtime) (*count, error) {
	tenant := threads.Behind(rt)
	n, at := &count{statuses: map[string]int{}, spent: map[string]int64{}}, time.Now().UTC()
	if tenant.Owner != nil {
		for t, err := range portionsOf(tenant)(ctx, threads.Query{}, "") {
			if errors.Is(err, perdure.ErrCorrupt) {
				break // lists report it
			}
			if err != nil {
				return nil, err
			}
			n.add(&t, 1)
		}
	} else {
		t := l.tallyOf(tenant)
		select {
		case t.turn <- struct{}{}:
			defer func() { <-t.turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		err := t.changes.Look(ctx, func(was *portion, now portion) {
			if was != nil {
				t.sum.add(was, -1)
			}
			t.sum.add(&now, 1)
		}, func(was portion) { t.sum.add(&was, -1) })
		if err != nil {
			return nil, err
		}
		*n = t.sum
		n.statuses, n.spent = maps.Clone(t.sum.statuses), maps.Clone(t.sum.spent)
		maps.DeleteFunc(n.statuses, func(_ string, n int) bool { return n == 0 })
		maps.DeleteFunc(n.spent, func(_ string, n int64) bool { return n == 0 })
		if n.uploads, n.more, err = tenant.UploadBytes(ctx); err != nil {
			return nil, err
		}
		n.bytes += n.uploads
	}
	n.at = at
	workers, err := rt.Workers(ctx)
	n.workers = len(workers)
	return n, cmp.Or(err, ctx.Err())
}
