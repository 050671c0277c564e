package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// A parent with a child that has ended, one that has failed and is caught, and
// one that runs, all large, forked there: the fork, and an import of its export
// by another store, verify, continue, end alike, and follow their recordings.
func TestAForkAmongChildrenIsVerifiedExportedImportedAndReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows := []perdure.Flow{
			double,
			perdure.NewFlow("big", func(_ context.Context, n int) (string, error) { return strings.Repeat("x", n), nil }),
			perdure.NewFlow("asking", func(ctx context.Context, prompt string) (string, error) {
				return perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: prompt[:1]})
			}),
			perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				big, err := perdure.Spawn(ctx, "big", "big", 100_000)
				if err != nil {
					return "", err
				}
				bad, err := perdure.Spawn(ctx, "bad", "double", -1)
				if err != nil {
					return "", err
				}
				ask, err := perdure.Spawn(ctx, "ask", "asking", strings.Repeat("?", 100_000))
				if err != nil {
					return "", err
				}
				if _, err := perdure.Join[int](ctx, "join-bad", bad); !errors.Is(err, perdure.ErrChild) {
					return "", err
				}
				answer, err := perdure.Join[string](ctx, "join-ask", ask)
				if err != nil {
					return "", err
				}
				x, err := perdure.Join[string](ctx, "join-big", big)
				return answer + x, err
			}),
		}
		k := kit.New(t, nil, perdure.Options{}, flows...)
		k.StartOn("p", "parent", "")
		k.Rest()
		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "p", As: "f"}); err != nil {
			t.Fatal(err)
		}
		check := func(k *kit.Kit, thread string) *bytes.Buffer {
			t.Helper()
			v, err := k.Verify(t.Context(), thread)
			if err != nil || !v.OK() {
				t.Fatalf("%s: %v %+v", thread, err, v)
			}
			var file bytes.Buffer
			kit.NoErr(t, k.Export(t.Context(), thread, &file, perdure.ExportOptions{}))
			if v, err := perdure.VerifyExport(bytes.NewReader(file.Bytes())); err != nil || !v.OK() {
				t.Fatalf("%s: %v %+v", thread, err, v)
			}
			return &file
		}
		half := check(k, "f")
		finish := func(k *kit.Kit, thread string) {
			t.Helper()
			kit.NoErr(t, k.Resume(t.Context(), thread, "", perdure.Note{}))
			k.Rest()
			run, err := k.GetRun(t.Context(), thread, "")
			kit.NoErr(t, err)
			child := run.Children[len(run.Children)-1].Thread
			own := k.WaitFor(child, perdure.Suspended)
			k.AnswerAt(own, "/ask", perdure.Answer{Value: "yes"})
			run = settledAs(k, thread, perdure.Succeeded)
			if got, err := perdure.Output[string](run); err != nil || got != "yes"+strings.Repeat("x", 100_000) {
				t.Errorf("%s: %.10s of %d, %v", thread, got, len(got), err)
			}
			if len(run.Children) != 4 {
				t.Errorf("%s has %+v", thread, run.Children)
			}
			report, err := perdure.Replay(t.Context(), check(k, thread), flows...)
			if err != nil || !report.OK() {
				t.Errorf("%s: %v %+v", thread, err, report)
			}
			check(k, child)
		}
		finish(k, "f")
		other := kit.New(t, nil, perdure.Options{}, flows...)
		if _, err := other.Import(t.Context(), half, perdure.ImportOptions{As: "i"}); err != nil {
			t.Fatal(err)
		}
		finish(other, "i")
		settledAs(k, "p", perdure.Suspended)
		// All of it goes.
		for _, one := range []struct {
			*kit.Kit
			thread string
		}{{k, "p"}, {other, "i"}} {
			if err := one.Erase(t.Context(), one.thread, perdure.EraseOptions{}); !errors.Is(err, perdure.ErrPinned) {
				t.Error(err)
			}
			if err := one.Erase(t.Context(), one.thread, perdure.EraseOptions{Dependents: true}); err != nil {
				t.Error(err)
			}
			one.Rest()
			kit.WantNothing(t, one.Store)
		}
	})
}

// A tenant cannot fork, rewind, answer or erase another tenant's thread, nor a
// child of it.
func TestTenantsKeepTheirFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		ann, bob := k.Tenant("ann"), k.Tenant("bob")
		kit.Start(t, ann, perdure.StartRequest{Thread: "p", Flow: "parent", Input: ""})
		k.Rest()
		run, err := ann.GetRun(t.Context(), "p", "")
		kit.NoErr(t, err)
		child := run.Children[0].Thread
		own, err := ann.GetRun(t.Context(), child, "")
		if err != nil || len(own.Asks) != 1 {
			t.Fatalf("%v %+v", err, own)
		}
		ctx := t.Context()
		for _, id := range []string{"p", child} {
			_, forkErr := bob.Fork(ctx, perdure.ForkRequest{Thread: id, As: "mine"})
			_, rewindErr := bob.Rewind(ctx, id, 1, perdure.Note{})
			_, againErr := bob.StartAgain(ctx, id, "", perdure.Note{})
			for _, err := range []error{forkErr, rewindErr, againErr, bob.Erase(ctx, id, perdure.EraseOptions{}), bob.Cancel(ctx, id, "", perdure.Note{})} {
				if !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("%s: %v", id, err)
				}
			}
		}
		answer := perdure.AskAnswer{Ask: own.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}}
		if err := bob.Answer(ctx, answer); !errors.Is(err, perdure.ErrNoAsk) {
			t.Error(err)
		}
		if err := ann.Answer(ctx, answer); err != nil {
			t.Error(err)
		}
		k.Rest()
		if run, err := ann.GetRun(ctx, "p", ""); err != nil || run.Status != perdure.Succeeded {
			t.Errorf("%v %+v", err, run)
		}
		for s, err := range bob.List(ctx, perdure.ListOptions{}) {
			t.Errorf("%v %+v", err, s)
		}
	})
}
