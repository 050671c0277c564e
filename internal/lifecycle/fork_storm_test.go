package lifecycle_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// busyFlow asks, sleeps, and takes step after step until it is told to stop.
func busyFlow(stop *atomic.Bool) perdure.Flow {
	return perdure.NewFlow("busy", func(ctx context.Context, _ string) (string, error) {
		answer, ticks := "", 0
		g := perdure.NewGroup(ctx)
		g.Go("ask", func(ctx context.Context) (err error) {
			answer, err = perdure.Ask[string](ctx, "who", perdure.Question{Prompt: "Who?"})
			return err
		})
		g.Go("timer", func(ctx context.Context) error { return perdure.Sleep(ctx, "nap", time.Second) })
		g.Go("load", func(ctx context.Context) error {
			for more := true; more; ticks++ {
				var err error
				if more, err = perdure.Step(ctx, fmt.Sprint("tick-", ticks), func(ctx context.Context) (bool, error) {
					return !stop.Load(), kit.Count.Add(ctx, 1)
				}); err != nil {
					return err
				}
				if err := perdure.Sleep(ctx, fmt.Sprint("rest-", ticks), 5*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		n, err := kit.Count.Get(ctx)
		return fmt.Sprint(answer, " ", int64(ticks) == n), err
	})
}

// cellsOf returns the cells of a thread, except those that say who depends on
// it.
func cellsOf(t *testing.T, s store.Store, name string) map[string]string {
	t.Helper()
	cells := map[string]string{}
	for c, err := range s.List(t.Context(), "", "") {
		kit.NoErr(t, err)
		if strings.Contains(c.Key, name) && !strings.HasPrefix(c.Key, "pin/") && !strings.HasPrefix(c.Key, "gate/") {
			cells[c.Key] = string(c.Version) + " " + string(c.Value)
		}
	}
	return cells
}

func hasHint(cells map[string]string) bool {
	for key := range cells {
		if strings.HasPrefix(key, "due/") {
			return true
		}
	}
	return false
}

// TestForkStorm forks a thread again and again while it runs, waits and is
// watched. It notices nothing.
func TestForkStorm(t *testing.T) {
	kit.Bubble(t, "memstore", func(t *testing.T) { forkStorm(t, memstore.New(), 50) })
	t.Run("sqlitestore", func(t *testing.T) {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
		kit.NoErr(t, err)
		t.Cleanup(func() { _ = s.Close() })
		forkStorm(t, s, 8)
	})
	t.Run("pgstore", func(t *testing.T) {
		s, err := pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), t.TempDir()), pgstore.Options{})
		kit.NoErr(t, err)
		t.Cleanup(func() { _ = s.Close() })
		forkStorm(t, s, 8)
	})
}

func forkStorm(t *testing.T, s store.Store, writers int) {
	forks := kit.Sized(60, 1000, 1000)
	var stop atomic.Bool
	k := kit.New(t, s, perdure.Options{}, busyFlow(&stop), kit.AskFlow("f", perdure.Question{}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	// A suspended thread stays as it is.
	k.StartOn("quiet", "f", "")
	k.WaitFor("quiet", perdure.Suspended)
	quiet := kit.Journals(t, s)[0]
	var before map[string]string
	settled := false
	for range 10_000 { // the last thing that its worker does is to remove the hint
		before = cellsOf(t, s, strings.TrimPrefix(quiet, "thread/"))
		if settled = !hasHint(before); settled {
			break
		}
		runtime.Gosched()
	}
	if !settled {
		t.Fatalf("the hint stays: %v", before)
	}
	bytes := journalBytes(t, s, quiet)

	run := k.StartOn("t", "busy", "")
	watched := make(chan []perdure.Event)
	go func() {
		var seen []perdure.Event
		defer func() { watched <- seen }()
		for e, err := range k.Events(ctx, "t", perdure.EventOptions{}) {
			if err != nil {
				t.Errorf("watching: %v", err)
				return
			}
			if seen = append(seen, e); e.Kind == "ended" {
				return
			}
		}
	}()
	run, err := k.Wait(ctx, "t", run.ID)
	kit.NoErr(t, err)
	ask := k.AskAt(run, "/ask/who")
	var wg sync.WaitGroup
	var mu sync.Mutex
	points := map[string]uint64{}
	for w := range writers {
		wg.Go(func() {
			for i := w; i < forks; i += writers {
				of := "t"
				if i%100 == 99 {
					of = "quiet"
				}
				f, err := k.Fork(ctx, perdure.ForkRequest{Thread: of, As: fmt.Sprint("fork-", i)})
				if err != nil {
					t.Errorf("fork %d: %v", i, err)
					return
				}
				if of == "t" {
					mu.Lock()
					points[f.Thread] = f.At
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	if err := k.AnswerAsk(ask.ID, perdure.Answer{Value: "me"}); err != nil {
		t.Fatalf("the ask is another: %v", err)
	}
	run, err = k.WaitEnd(ctx, "t", run.ID)
	kit.NoErr(t, err)
	kit.WantOutput(t, run, "me true")
	count := map[string]int{}
	events := <-watched
	for i, e := range events {
		if e.Seq != uint64(i+1) || e.Thread != "t" {
			t.Fatalf("the stream has event %d of %s as its %d.", e.Seq, e.Thread, i+1)
		}
		count[e.Kind+" "+e.Path]++
	}
	if count["asked /ask/who"] != 1 || count["fired /timer/nap"] != 1 || count["forked "] != 0 {
		t.Errorf("asked, fired, forked: %d, %d, %d", count["asked /ask/who"], count["fired /timer/nap"], count["forked "])
	}
	asks := map[string]bool{ask.ID: true}
	n := 0
	for as, at := range points {
		if n++; n > 60 {
			break
		}
		now := k.MustStateAt(as, 0)
		alike(t, as, k.MustStateAt("t", at), now)
		if len(now.Asks) != 1 || asks[now.Asks[0].ID] {
			t.Errorf("%s has the asks %v", as, now.Asks)
			continue
		}
		asks[now.Asks[0].ID] = true
	}
	if after := cellsOf(t, s, strings.TrimPrefix(quiet, "thread/")); !cmp.Equal(before, after) || journalBytes(t, s, quiet) != bytes {
		t.Errorf("what stood still has changed:\n%s", cmp.Diff(before, after))
	}
	if names := kit.Journals(t, s); len(names) != forks+2 {
		t.Errorf("there are %d threads", len(names))
	}
}
