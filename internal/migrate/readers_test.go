package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store/memstore"
)

// TestReadersOfAMovedThread has readers without a server wait for a thread while it is
// moved, and come later. All of them learn where it continues, and a run that has
// ended is still told.
func TestReadersOfAMovedThread(t *testing.T) {
	kit.Bubble(t, "all", func(t *testing.T) {
		from := memstore.New()
		k := kit.New(t, from, perdure.Options{}, perdure.NewFlow("ask", func(ctx context.Context, in string) (string, error) {
			if in == "none" {
				return "ended", nil
			}
			return perdure.Ask[string](ctx, "sure?", perdure.Question{Prompt: "sure?"})
		}))
		over := k.StartOn("t", "ask", "none")
		k.WaitFor("t", perdure.Succeeded)
		run := k.StartOn("t", "ask", "one")
		k.WaitFor("t", perdure.Suspended)
		last := uint64(len(k.EventsOf("t"))) + 1 // of the event moved
		events := func(o perdure.EventOptions) func() error {
			return func() error {
				kind := ""
				for e, err := range k.Events(t.Context(), "t", o) {
					if err != nil && kind != "moved" && o.After < last {
						return fmt.Errorf("the last event is %q, and then: %v", kind, err)
					}
					if err != nil {
						return err
					}
					kind = e.Kind
				}
				return errors.New("the events end without an error")
			}
		}
		readers := map[string]func() error{
			"events":          events(perdure.EventOptions{}),
			"events of a run": events(perdure.EventOptions{Run: run.ID}),
			"end": func() error {
				_, err := k.WaitEnd(t.Context(), "t", run.ID)
				return err
			},
		}
		open := map[string]chan error{}
		for what, read := range readers {
			ended := make(chan error, 1)
			open[what] = ended
			go func() { ended <- read() }()
		}
		synctest.Wait()
		_, err := migrate.Run(t.Context(), from, memstore.New(), migrate.Options{To: "there"})
		kit.NoErr(t, err)
		readers["events after the last"] = events(perdure.EventOptions{After: last})
		readers["wait"] = func() error {
			_, err := k.Wait(t.Context(), "t", run.ID)
			return err
		}
		wantMoved := func(what string, err error) {
			t.Helper()
			if moved := (*perdure.MovedError)(nil); !errors.As(err, &moved) || moved.Thread != "t" || moved.To != "there" {
				t.Errorf("%s: %v, want that t continues there", what, err)
			}
		}
		for what, ended := range open {
			wantMoved(what+", open", <-ended)
		}
		for what, read := range readers {
			wantMoved(what+", later", read())
		}
		ended, err := k.Wait(t.Context(), "t", over.ID)
		if kit.NoErr(t, err); ended.Status != perdure.Succeeded {
			t.Errorf("the run that had ended is %s", ended.Status)
		}
		for _, e := range k.EventsOf("t") {
			if e.Seq == last && e.Kind != "moved" {
				t.Errorf("the last event is %s", e.Kind)
			}
		}
		k.Stop()
	})
}
