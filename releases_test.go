package perdure_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

var baseline = flag.String("baseline", "", "write the journals of this version, such as v0.1.0, into testdata/releases")

// releaseFlows are the flows whose journals every release keeps. They use each verb and
// never change: a new verb gets a new flow, whose journals begin with the next release.
var releaseFlows = []perdure.Flow{
	perdure.NewFlow("order", func(ctx context.Context, item string) (string, error) {
		if err := perdure.Plan(ctx, "find", "pack", "approve", "pay"); err != nil {
			return "", err
		}
		price, err := perdure.Step(ctx, "find", func(ctx context.Context) (int, error) {
			return len(item), errors.Join(perdure.NewCounter("found").Add(ctx, 1), perdure.NewList[string]("log").Append(ctx, item), perdure.Spend(ctx, "cents", 3))
		}, perdure.Input(item))
		if err != nil {
			return "", err
		}
		again := true
		if _, err := perdure.Step(ctx, "flaky", func(context.Context) (bool, error) {
			if item == "broken" {
				return false, perdure.Permanent(perdure.Coded("broken", errors.New("it is broken")))
			}
			if again {
				again = false
				return false, errors.New("busy")
			}
			return true, nil
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Millisecond})); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		g.Go("box", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "fold", func(context.Context) (string, error) { return strings.Repeat("cardboard ", 8<<10), nil })
			return err
		})
		g.Go("label", func(ctx context.Context) error {
			child, err := perdure.Spawn(ctx, "print", "label", item)
			if err != nil {
				return err
			}
			_, err = perdure.Join[string](ctx, "printed", child)
			return err
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		if _, err := perdure.Scope(ctx, "pack", func(ctx context.Context) (bool, error) {
			return true, errors.Join(perdure.Sleep(ctx, "dry", time.Millisecond), perdure.Emit(ctx, "packed", map[string]int{"price": price}))
		}); err != nil {
			return "", err
		}
		if _, err := perdure.Receive[string](ctx, "news", "weather", time.Millisecond); err != nil && !errors.Is(err, perdure.ErrTimeout) {
			return "", err
		}
		ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Kind: "approval", Prompt: "Pay?", Expires: 100 * 365 * 24 * time.Hour})
		if err != nil || !ok {
			return "not paid", err
		}
		if err := perdure.Cleanup(ctx, "sweep", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "pay", func(context.Context) (string, error) { return "paid", nil }, perdure.AtMostOnce(), perdure.Timeout(time.Minute))
	}),
	perdure.NewFlow("label", func(_ context.Context, item string) (string, error) { return "label of " + item, nil }),
}

// releaseNode is a runtime with a worker.
type releaseNode struct {
	*perdure.Runtime
	t *testing.T
}

func newReleaseNode(t *testing.T, s store.Store) (n releaseNode, stop func()) {
	t.Helper()
	rt, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}, releaseFlows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	return releaseNode{rt, t}, func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// stands waits until the newest run of a thread has ended or asks, and expects a status.
func (n releaseNode) stands(thread string, want perdure.Status) *perdure.Run {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute) // only one that hangs takes so long
	defer cancel()
	for range n.Watch(ctx) {
		run, err := n.GetRun(n.t.Context(), thread, "")
		if err != nil {
			n.t.Fatal(err)
		}
		if !run.Status.Final() && (run.Status != perdure.Suspended || len(run.Asks) == 0) {
			continue // it works, sleeps, or waits for its child
		}
		if run.Status != want {
			n.t.Fatalf("%s is %s (%s), want %s", thread, run.Status, run.Error, want)
		}
		return run
	}
	n.t.Fatalf("%s does not stand", thread)
	return nil
}

func (n releaseNode) start(thread, item string) {
	n.t.Helper()
	if _, err := n.Start(n.t.Context(), perdure.StartRequest{Thread: thread, Flow: "order", Input: item}); err != nil {
		n.t.Fatal(err)
	}
}

// approve answers the ask of a thread, whose run then ends.
func (n releaseNode) approve(thread string) {
	n.t.Helper()
	run := n.stands(thread, perdure.Suspended)
	if err := n.Answer(n.t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}); err != nil {
		n.t.Fatal(err)
	}
	if run := n.stands(thread, perdure.Succeeded); string(run.Output) != `"paid"` {
		n.t.Errorf("%s ends with %s", thread, run.Output)
	}
}

// releaseThreads are the threads of a release, and how each of them stands.
var releaseThreads = map[string]perdure.Status{"done": perdure.Succeeded, "waiting": perdure.Suspended, "failed": perdure.Failed}

// writeRelease makes the journals of a release: its threads as exports, and in a store.
func writeRelease(t *testing.T, folder string) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "store.sqlite")
	s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, stop := newReleaseNode(t, s)
	n.start("done", "book")
	n.approve("done")
	n.start("waiting", "pen")
	n.start("failed", "broken")
	for thread, want := range releaseThreads {
		n.stands(thread, want)
		var export bytes.Buffer
		if err := n.Export(t.Context(), thread, &export, perdure.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, thread+".export"), export.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	copyFile(t, file, filepath.Join(folder, "store.sqlite"))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestJournalsOfEveryRelease reads what each release wrote, and continues it: docs/compatibility.md
// promises both.
func TestJournalsOfEveryRelease(t *testing.T) {
	if *baseline != "" {
		writeRelease(t, filepath.Join("testdata", "releases", *baseline))
	}
	folders, err := filepath.Glob("testdata/releases/v*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("there are no releases: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			t.Run("exports", func(t *testing.T) { readExports(t, folder) })
			t.Run("store", func(t *testing.T) { readStore(t, folder) })
		})
	}
}

// readExports checks the exports of a release, replays them, and continues a thread.
func readExports(t *testing.T, folder string) {
	n, stop := newReleaseNode(t, memstore.New())
	defer stop()
	for thread, want := range releaseThreads {
		data, err := os.ReadFile(filepath.Join(folder, thread+".export"))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := perdure.VerifyExport(bytes.NewReader(data)); err != nil || !v.OK() {
			t.Errorf("%s: %+v, %v", thread, v, err)
		}
		if r, err := perdure.Replay(t.Context(), bytes.NewReader(data), releaseFlows...); err != nil || !r.OK() {
			t.Errorf("%s: the code no longer fits: %+v, %v", thread, r, err)
		}
		if _, err := n.Import(t.Context(), bytes.NewReader(data), perdure.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		if want.Final() {
			n.stands(thread, want)
			continue
		}
		if err := n.Resume(t.Context(), thread, "", perdure.Note{}); err != nil { // an import is paused
			t.Fatal(err)
		}
		n.approve(thread)
	}
}

// readStore opens a copy of the store of a release, and continues its threads.
func readStore(t *testing.T, folder string) {
	file := filepath.Join(t.TempDir(), "store.sqlite")
	copyFile(t, filepath.Join(folder, "store.sqlite"), file)
	s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, stop := newReleaseNode(t, s)
	defer stop()
	for thread, want := range releaseThreads {
		if v, err := n.Verify(t.Context(), thread); err != nil || !v.OK() {
			t.Errorf("%s: %+v, %v", thread, v, err)
		}
		n.stands(thread, want)
	}
	n.approve("waiting")
	n.start("done", "ink") // another turn on a thread of then
	n.approve("done")
	listed := map[string]perdure.Status{}
	for sum, err := range n.List(t.Context(), perdure.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed[sum.ID] = sum.Status
	}
	if listed["done"] != perdure.Succeeded || listed["waiting"] != perdure.Succeeded || listed["failed"] != perdure.Failed {
		t.Errorf("the list says %v", listed)
	}
}
