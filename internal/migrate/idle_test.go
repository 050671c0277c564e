package migrate_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// A worker of a store that has moved finds nothing to do. Its log says why, once,
// whether it was there before or begins afterwards.
func TestAnIdleWorkerSaysThatItsStoreHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(upkeep.SetSweepInterval(upkeep.SweepInterval))
		from, to := memstore.New(), memstore.New()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		work := func(s store.Store) *logged {
			l := new(logged)
			rt, err := perdure.New(t.Context(), s, perdure.Options{Logger: slog.New(slog.NewTextHandler(io.MultiWriter(l, t.Output()), nil))}, echo)
			kit.NoErr(t, err)
			all.Go(func() { kit.NoErr(t, rt.Work(ctx)) })
			return l
		}
		before := work(from)
		time.Sleep(time.Minute)
		if n := before.count("has moved"); n != 0 {
			t.Fatalf("before the migration %d lines say that it has happened", n)
		}
		_, err := migrate.Run(t.Context(), from, to, migrate.Options{To: "sqlite:new.db", Grace: 1})
		kit.NoErr(t, err)
		after, there := work(from), work(to)
		time.Sleep(time.Hour)
		for name, l := range map[string]*logged{"was there before": before, "began afterwards": after} {
			if n := l.count("the store has moved: nothing is executed here"); n != 1 || l.count("store=sqlite:new.db") != 1 {
				t.Errorf("the log of the worker that %s says so %d times, want once", name, n)
			}
		}
		if n := there.count("has moved"); n != 0 {
			t.Errorf("the log of the worker of the new store says so %d times", n)
		}
		stop()
		all.Wait()
	})
}
