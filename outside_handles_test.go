package perdure_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// TestTwoHandlesOnOneStoreWorkTogether has one runtime that executes and one,
// as in another process, that starts, watches, steers and answers.
func TestTwoHandlesOnOneStoreWorkTogether(t *testing.T) {
	for _, scheme := range []string{"sqlite:", "file:"} {
		t.Run(scheme, func(t *testing.T) {
			url := scheme + filepath.Join(t.TempDir(), "s")
			open := func() store.Store {
				s, err := store.Open(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
				if err := setTone(ctx, "one", in); err != nil {
					return "", err
				}
				a, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
				if err != nil {
					return "", err
				}
				b, err := perdure.Receive[string](ctx, "r", "go", 0)
				return in + a + b, err
			})
			k := newKit(t, open(), perdure.Options{}, flow)
			away, err := perdure.New(t.Context(), open(), perdure.Options{Version: "other"}, flow)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run, err := away.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "f", Input: "a"})
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for e, err := range away.Events(ctx, "t", perdure.EventOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, e.Kind)
				switch e.Kind {
				case "asked":
					if err := away.Answer(ctx, perdure.AskAnswer{Ask: e.Ask, Answer: perdure.Answer{Value: "b"}}); err != nil {
						t.Fatal(err)
					}
				case "waiting":
					if err := away.Signal(ctx, "t", "go", "c", perdure.SignalOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if e.Kind == "ended" {
					break
				}
			}
			want := []string{"created", "queued", "claimed", "step", "asked", "suspended", "answered", "claimed", "waiting", "suspended", "signal", "claimed", "ended"}
			if d := cmp.Diff(want, kinds); d != "" {
				t.Error(d)
			}
			for _, rt := range []*perdure.Runtime{away, k.Runtime} {
				got, err := rt.Wait(ctx, "t", run.ID)
				if err != nil {
					t.Fatal(err)
				}
				wantOutput(t, got, "abc")
				c, err := rt.StateAt(ctx, "t", 0)
				if err != nil || string(c.State["tone"]) != `"a"` {
					t.Errorf("the state is %s, %v", c.State, err)
				}
			}
		})
	}
}
