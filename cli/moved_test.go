package cli

import (
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store/memstore"
)

// TestMovedStore has commands wait for runs while the store is migrated. They end and
// say where the thread continues.
func TestMovedStore(t *testing.T) {
	p := served(t)
	p.run("", "run", "order", "tea", "--thread", "t").want(exit.Waiting)
	waiting := [][]string{{"run", "echo", "x", "--thread", "t"}, {"run", "echo", "x", "--thread", "t", "--watch"}, {"run", "echo", "x", "--thread", "t", "--json"}}
	results := make([]*result, len(waiting)+1)
	var all sync.WaitGroup
	for i, args := range waiting {
		all.Go(func() { results[i] = p.run("", args...) })
	}
	all.Go(func() { results[len(waiting)] = p.run("", "events", "-f", "t") })
	queued := 0
	for ev, err := range p.rt.Events(t.Context(), "t", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == "queued" {
			queued++
		}
		if queued == 1+len(waiting) {
			break
		}
	}
	if _, err := migrate.Run(t.Context(), threads.Behind(p.rt).All.Store, memstore.New(), migrate.Options{To: "there", Grace: 1}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for _, r := range results {
		r.want(exit.Conflict, "continues in there")
	}
	if r := p.run("", "show", "t").want(exit.OK, "continues in there"); strings.Contains(r.out, "perdure answer") {
		t.Errorf("show suggests to answer: %s", r.out)
	}
	p.run("", "doctor").want(exit.OK, "the store has moved: 1 of 1 threads continue in there", "0 open asks")
}
