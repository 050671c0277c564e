package proof

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/resttest"
	"github.com/perdure/perdure/internal/s3test"
	_ "github.com/perdure/perdure/store/upstashstore"
)

// engines are all that a store can be moved to: each returns the URL of an empty store.
var engines = []struct {
	name string
	url  func(t *testing.T) string
}{
	{"sqlite", func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") }},
	{"postgres", func(t *testing.T) string { return pgtest.Schema(pgtest.URL(t), t.TempDir()) }},
	{"nats", func(t *testing.T) string { return natstest.Stream(natstest.URL(t), t.TempDir()) }},
	{"s3", func(t *testing.T) string { return s3test.Empty(t) }},
	{"redis", func(t *testing.T) string { return redistest.Prefix(redistest.URL(t), t.TempDir()) }},
	{"upstash", func(t *testing.T) string { return resttest.URL(t, t.TempDir()) }},
	{"file", func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "store") }},
}

// TestMigrateBetweenEngines moves a store from each engine to each other one by the
// command that a program with all drivers has, looks at both with doctor, and goes on with
// a run in the new store. With -short, each engine is a source and a target once.
func TestMigrateBetweenEngines(t *testing.T) {
	for i, from := range engines {
		for j, to := range engines {
			if i == j || testing.Short() && j != (i+1)%len(engines) {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel() // a migration waits for whoever may still write
				moveBetween(t, from.url(t), to.url(t))
			})
		}
	}
}

func moveBetween(t *testing.T, from, to string) {
	echo := perdure.NewFlow("echo", func(_ context.Context, text string) (string, error) { return text, nil })
	decide := perdure.NewFlow("decide", func(ctx context.Context, what string) (string, error) {
		before, err := perdure.Step(ctx, "before", func(context.Context) (string, error) { return what + " was seen", nil })
		if err != nil {
			return "", err
		}
		ok, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Prompt: what})
		if err != nil || !ok {
			return "", err
		}
		return before + " and allowed", nil
	})
	// work opens a store, and works on it while do is called.
	work := func(url string, do func(rt *perdure.Runtime)) {
		t.Helper()
		rt, err := perdure.Open(t.Context(), url, echo, decide)
		kit.NoErr(t, err)
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- rt.Work(ctx) }()
		do(rt)
		stop()
		kit.NoErr(t, <-over)
		kit.NoErr(t, rt.Close())
	}
	command := func(args ...string) string {
		t.Helper()
		var said bytes.Buffer
		if code := cli.Run(t.Context(), cli.Options{Args: args, Stdout: &said, Stderr: &said}, echo, decide); code != 0 {
			t.Fatalf("%s exits with %d:\n%s", args[0], code, &said)
		}
		return said.String()
	}
	long := strings.Repeat("long ", 100_000) // a blob
	var waiting *perdure.Run
	work(from, func(rt *perdure.Runtime) {
		run, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "echo", Thread: "ended", Input: long})
		kit.NoErr(t, err)
		_, err = rt.WaitEnd(t.Context(), "ended", run.ID)
		kit.NoErr(t, err)
		run, err = rt.Start(t.Context(), perdure.StartRequest{Flow: "decide", Thread: "waiting", Input: "it"})
		kit.NoErr(t, err)
		waiting, err = rt.Wait(t.Context(), "waiting", run.ID)
		kit.NoErr(t, err)
	})
	if said := command("migrate", "--from", from, "--to", to, "--weaker"); !strings.Contains(said, "verified: 2 threads") {
		t.Errorf("migrate says:\n%s", said)
	}
	if said := command("doctor", "--store", from); !strings.Contains(said, "2 of 2 threads continue in") {
		t.Errorf("doctor says of the old store:\n%s", said)
	}
	if said := command("doctor", "--store", to); !strings.Contains(said, "Nothing is broken") || strings.Contains(said, "continue in") {
		t.Errorf("doctor says of the new store:\n%s", said)
	}
	work(to, func(rt *perdure.Runtime) {
		var threads []string
		for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
			kit.NoErr(t, err)
			threads = append(threads, s.ID)
			if v, err := rt.Verify(t.Context(), s.ID); err != nil || !v.OK() {
				t.Errorf("thread %s: %+v, %v", s.ID, v, err)
			}
		}
		if slices.Sort(threads); !slices.Equal(threads, []string{"ended", "waiting"}) {
			t.Errorf("the new store has %q", threads)
		}
		kit.NoErr(t, rt.Answer(t.Context(), perdure.AskAnswer{Ask: waiting.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}))
		run, err := rt.WaitEnd(t.Context(), "waiting", waiting.ID)
		kit.NoErr(t, err)
		if string(run.Output) != `"it was seen and allowed"` {
			t.Errorf("the run ends with %s", run.Output)
		}
	})
}
