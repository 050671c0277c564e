package feed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/server/internal/feed"
	"github.com/perdure/perdure/store/memstore"
)

// BenchmarkChanges looks at ten thousand old threads of which one has changed, and at all
// of them.
func BenchmarkChanges(b *testing.B) {
	const n = 10_000
	rt, err := perdure.New(b.Context(), memstore.New(), perdure.Options{Version: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	undo := clock.Set(func() time.Time { return time.Now().Add(-time.Hour) })
	for i := range n {
		if _, err := rt.Create(b.Context(), perdure.CreateRequest{Thread: fmt.Sprint(i)}); err != nil {
			b.Fatal(err)
		}
	}
	undo()
	for _, all := range []bool{false, true} {
		b.Run(fmt.Sprint("all ", all), func(b *testing.B) {
			f := newFollower(rt)
			look := func() {
				if err := f.changes.Look(b.Context(), func(*perdure.Summary, perdure.Summary) {}, func(perdure.Summary) {}); err != nil {
					b.Fatal(err)
				}
			}
			look()
			for b.Loop() {
				if err := rt.Signal(b.Context(), "7", "x", 1, perdure.SignalOptions{}); err != nil {
					b.Fatal(err)
				}
				if all {
					f.changes = feed.Changes[perdure.Summary]{Tenant: f.changes.Tenant, List: f.changes.List, Cursor: f.changes.Cursor, Moved: f.changes.Moved}
				}
				look()
			}
		})
	}
}
