package perduretest

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// refund waits for a person, and shows ids, keys, large values and failures in
// its journal.
var refund = perdure.NewFlow("refund", func(ctx context.Context, order string) (string, error) {
	if err := perdure.Plan(ctx, "look", "approve"); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "look", func(ctx context.Context) (string, error) {
		return perdure.Key(ctx), perdure.NewCounter("looks").Add(ctx, 1)
	}, perdure.Input(order)); err != nil {
		return "", err
	}
	if _, err := step(ctx, "letter", strings.Repeat("x", 70<<10)); err != nil {
		return "", err
	}
	if err := perdure.Sleep(ctx, "nap", 90*time.Minute); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "flaky", func(ctx context.Context) (int, error) {
		if Attempt(ctx) == 1 {
			return 0, errors.New("busy")
		}
		panic("broken")
	}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Hour})); err == nil {
		return "", errors.New("flaky worked")
	}
	ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: "Refund?", Expires: 24 * time.Hour})
	if err != nil || !ok {
		return "", err
	}
	return perdure.Step(ctx, "pay", func(context.Context) (string, error) { return "paid", nil },
		perdure.AtMostOnce(), perdure.Timeout(time.Minute))
})

func TestGoldenTraceIsStable(t *testing.T) {
	for range 2 {
		Virtual(t, Setup{Flows: []perdure.Flow{refund}}, func(t *testing.T, e *Env) {
			e.Start("order-7", "refund", "seven")
			e.Answer("order-7", "/approve", perdure.Answer{Value: true, By: "ann"})
			e.Wait("order-7", perdure.Succeeded)
			e.Golden("order-7", "testdata/refund.txt")
		})
	}
}

func TestTraceNamesGeneratedIDs(t *testing.T) {
	Virtual(t, Setup{Flows: []perdure.Flow{refund}}, func(t *testing.T, e *Env) {
		run, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Flow: "refund", Input: "x"})
		if err != nil {
			t.Fatal(err)
		}
		run = e.Wait(run.Thread, perdure.Suspended)
		text := e.Trace(run.Thread)
		for _, id := range []string{run.Thread, run.ID, run.Asks[0].ID} {
			if strings.Contains(text, id) {
				t.Errorf("the trace shows %s:\n%s", id, text)
			}
		}
		if !strings.Contains(text, `"thread":"thread1"`) {
			t.Errorf("the thread has no small name:\n%s", text)
		}
	})
}

func TestGoldenTellsWhatDiffers(t *testing.T) {
	s := memstore.New()
	flow := perdure.NewFlow("f", func(context.Context, string) (string, error) { return "", nil })
	rt, err := perdure.New(t.Context(), s, perdure.Options{}, flow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: "in"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "deep", "t.txt")
	old := *update
	*update = false
	defer func() { *update = old }()
	golden := func(thread string) string {
		r := &recorder{ctx: t.Context()}
		Golden(r, s, thread, file)
		return strings.Join(r.said, "\n")
	}
	if said := golden("nobody"); !strings.Contains(said, `no thread "nobody"`) {
		t.Errorf("an unknown thread: %s", said)
	}
	if said := golden("t"); !strings.Contains(said, "-perdure.update") || !strings.Contains(said, "2 +0s queued") {
		t.Errorf("a missing file: %s", said)
	}

	*update = true
	said := golden("t")
	*update = false
	if said != "" {
		t.Errorf("the update: %s", said)
	}
	if said := golden("t"); said != "" {
		t.Errorf("after the update: %s", said)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), `"in"`, `"out"`, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	said = golden("t")
	for _, want := range []string{"  1 +0s created", "- 2 +0s queued", `"out"`, "+ 2 +0s queued", `"in"`} {
		if !strings.Contains(said, want) {
			t.Errorf("a difference does not show %q: %s", want, said)
		}
	}
}

// TestGoldenHeedsTheTestPackagesFlag defines -update as a test package may.
func TestGoldenHeedsTheTestPackagesFlag(t *testing.T) {
	if *update {
		t.Skip("the files are being rewritten")
	}
	if updating() {
		t.Error("an update without a flag")
	}
	if flag.Lookup("update") == nil { // it stays defined when the test runs again
		flag.Bool("update", false, "")
	}
	for _, on := range []string{"true", "false"} {
		if err := flag.Set("update", on); err != nil {
			t.Fatal(err)
		}
		if got := updating(); got != (on == "true") {
			t.Errorf("with -update=%s of the test package updating is %t", on, got)
		}
	}
}
