package backup_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/kit"
)

// TestRestoredRuns backs up a run that waits, lets it go on, and restores the moment
// before. There it goes on in another way, and its steps have the keys they had.
func TestRestoredRuns(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		keys := make(chan string, 10)
		flow := perdure.NewFlow("pay", func(ctx context.Context, _ string) (string, error) {
			who, err := perdure.Receive[string](ctx, "word", "go", 0)
			if err != nil {
				return "", err
			}
			return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
				keys <- perdure.Key(ctx)
				return who, nil
			})
		})
		s := openAt(t, engine, filepath.Join(t.TempDir(), "store"))
		k := kit.New(t, s, perdure.Options{}, flow)
		k.StartOn("a", "pay", "")
		k.WaitFor("a", perdure.Suspended)
		dir := filepath.Join(t.TempDir(), "b")
		m, err := backup.Take(t.Context(), s, dir)
		kit.NoErr(t, err)
		if m.Threads != 1 || m.Entries < 3 {
			t.Errorf("the manifest is %+v", m)
		}
		kit.NoErr(t, k.Signal(t.Context(), "a", "go", "first", perdure.SignalOptions{}))
		kit.WantOutput(t, k.WaitFor("a", perdure.Succeeded), "first")
		k.StartOn("later", "pay", "")
		events := k.EventsOf("a")
		last := events[len(events)-1]

		r := kit.New(t, restored(t, engine, dir), perdure.Options{}, flow)
		_, err = r.Get(t.Context(), "later")
		kit.WantErr(t, "a thread that began after the backup", err, perdure.ErrNoThread)
		kit.NoErr(t, r.Signal(t.Context(), "a", "go", "second", perdure.SignalOptions{}))
		kit.WantOutput(t, r.WaitFor("a", perdure.Succeeded), "second")
		r.MustVerify("a")
		if first, second := <-keys, <-keys; first != second {
			t.Errorf("the step has the key %s, and had %s", second, first)
		}
		now := r.EventsOf("a")
		if now[0].Life == "" || now[0].Life == last.Life || now[len(now)-1].Seq != last.Seq {
			t.Errorf("the events are %+v, and were %+v", now, events)
		}
		again := kit.Runtime(t, restored(t, engine, dir), perdure.Options{})
		if life, err := again.Tag(t.Context(), "a"); err != nil || life == now[0].Life {
			t.Errorf("two restores of one backup have the life %q, %v", life, err)
		}
		for _, err := range again.Events(t.Context(), "a", perdure.EventOptions{Replay: true, Life: now[0].Life}) {
			kit.WantErr(t, "events of another restoration", err, perdure.ErrRestored)
		}
	})
}
