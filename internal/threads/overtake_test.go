package threads_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// pausing calls then before its n-th call that reads or changes a cell.
type pausing struct {
	store.Store
	n    atomic.Int64
	then func()
}

// pausingAt returns a store that calls then before its n-th such call.
func pausingAt(s store.Store, n int, then func()) *pausing {
	p := &pausing{Store: s, then: then}
	p.n.Store(int64(n))
	return p
}

func (p *pausing) count() {
	if p.n.Add(-1) == 0 {
		p.then()
	}
}

func (p *pausing) Get(ctx context.Context, key string) (store.Cell, error) {
	p.count()
	return p.Store.Get(ctx, key)
}

func (p *pausing) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	p.count()
	return p.Store.Put(ctx, key, value, prev)
}

func (p *pausing) Delete(ctx context.Context, key string, version store.Version) error {
	p.count()
	return p.Store.Delete(ctx, key, version)
}

// TestSummariesAtTheSameTime has a process write the summary of an earlier entry while
// another writes that of a later one: it begins at any call of the other's, stops at any of
// its own, and goes on when the other has ended. Lists find the thread by all that it has.
func TestSummariesAtTheSameTime(t *testing.T) {
	for _, order := range [][]string{{"cancel", "patch"}, {"patch", "cancel"}} {
		kit.Bubble(t, strings.Join(order, " and "), func(t *testing.T) {
			overlaps := 0
			for at, more := 1, true; more && !t.Failed(); at++ {
				for stop := kit.Sized(3, 1, 1); stop <= 24; stop += kit.Sized(6, 1, 1) {
					met := summariseTwice(t, order, at, stop)
					more = met
					if met {
						overlaps++
					}
				}
			}
			if overlaps < 40 {
				t.Errorf("they met only %d times", overlaps)
			}
		})
	}
}

// summariseTwice reports whether the two met.
func summariseTwice(t *testing.T, order []string, at, stop int) (met bool) {
	t.Helper()
	inner := kit.Plain(memstore.New())
	rt := kit.Runtime(t, inner, perdure.Options{}, indexFlows...)
	kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "ask", Input: "x", User: "ann", Metadata: map[string]string{"task": "1"}})
	name := strings.TrimPrefix(kit.Journals(t, inner)[0], threads.JournalKey(""))
	// Both changes are in the journal before either has written its summary.
	var opened []*threads.Opened
	late := kit.Runtime(t, &deaf{inner, threads.JournalKey(name)}, perdure.Options{}, indexFlows...)
	for _, what := range order {
		if what == "patch" {
			kit.NoErr(t, late.SetMetadata(t.Context(), "t", nil, map[string]string{"task": "2"}, perdure.Note{}))
		} else {
			kit.NoErr(t, late.Cancel(t.Context(), "t", "", perdure.Note{}))
		}
		o, err := threads.Behind(rt).All.Read(t.Context(), name)
		kit.NoErr(t, err)
		o.Thread = o.Thread.Clone()
		opened = append(opened, o)
	}
	release, ended := make(chan struct{}), make(chan struct{})
	first := pausingAt(inner, stop, func() { <-release })
	second := pausingAt(inner, at, func() {
		met = true
		go func() {
			defer close(ended)
			kit.NoErr(t, on(t, first).Summarise(t.Context(), opened[0]))
		}()
		synctest.Wait() // until it has ended, or stopped
	})
	kit.NoErr(t, on(t, second).Summarise(t.Context(), opened[1]))
	close(release)
	if met {
		<-ended
	}
	checkLists(t, fmt.Sprintf("the first begins at call %d of the second and stops at its own call %d", at, stop), rt, inner)
	kit.NoErr(t, rt.Erase(t.Context(), "t", perdure.EraseOptions{}))
	kit.WantNothing(t, inner)
	return met
}

func on(t *testing.T, s store.Store) *threads.Threads {
	t.Helper()
	c, err := threads.New(t.Context(), s, slog.New(slog.DiscardHandler), time.Minute)
	kit.NoErr(t, err)
	return c
}

// deaf loses writes of a cell.
type deaf struct {
	store.Store
	key string
}

func (d *deaf) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if key == d.key {
		return "", store.ErrUnavailable
	}
	return d.Store.Put(ctx, key, value, prev)
}
