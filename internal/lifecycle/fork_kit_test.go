package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// odyssey is a flow that uses every verb, and notes what it does outside.
type odyssey struct {
	mu   sync.Mutex
	ran  []string          // paths of the leaves, as they are started
	keys map[string]string // by key: the leaf
}

// did notes that a leaf was started, and returns whether it is the first time
// under its key.
func (o *odyssey) did(ctx context.Context, path string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[string]string{}
	}
	o.ran = append(o.ran, path)
	_, again := o.keys[perdure.Key(ctx)]
	o.keys[perdure.Key(ctx)] = path
	return !again
}

// reset forgets what was done, and returns it.
func (o *odyssey) reset() (ran []string, keys map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ran, keys = o.ran, o.keys
	o.ran, o.keys = nil, nil
	return ran, keys
}

var odyFact = perdure.NewFact[string]("home")

// leaf is a step that changes the count and the list.
func (o *odyssey) leaf(ctx context.Context, path, name string, opts ...perdure.StepOption) (string, error) {
	return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		o.did(ctx, path+"/"+name)
		return name, errors.Join(kit.Count.Add(ctx, 1), kit.Items.Append(ctx, name), perdure.Spend(ctx, "cents", 1))
	}, opts...)
}

// travel is the flow "travel": every verb once. What it returns follows from
// its input, the answers and the signal.
func (o *odyssey) travel(ctx context.Context, in string) (string, error) {
	if err := perdure.Plan(ctx, "first", "once", "flaky", "pack"); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
		o.did(ctx, "/first")
		return 1, errors.Join(kit.Tone.Set(ctx, in), odyFact.Set(ctx, "Ithaca"), perdure.Spend(ctx, "cents", 5))
	}); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "once", func(ctx context.Context) (int, error) {
		o.did(ctx, "/once")
		return 2, nil
	}, perdure.AtMostOnce(), perdure.Timeout(time.Second)); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "flaky", func(ctx context.Context) (int, error) {
		if o.did(ctx, "/flaky") {
			return 0, errors.New("not yet")
		}
		return 3, nil
	}, perdure.Retry(perdure.RetryPolicy{Attempts: 4, Wait: 5 * time.Second})); err != nil {
		return "", err
	}
	var answer string
	g := perdure.NewGroup(ctx)
	g.Go("left", func(ctx context.Context) error {
		if _, err := o.leaf(ctx, "/left", "a"); err != nil {
			return err
		}
		if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
			return err
		}
		_, err := o.leaf(ctx, "/left", "b")
		return err
	})
	g.Go("right", func(ctx context.Context) (err error) {
		answer, err = perdure.Ask[string](ctx, "where", perdure.Question{Prompt: "Where?", Data: in})
		if err == nil {
			_, err = o.leaf(ctx, "/right", "c")
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	if _, _, err := perdure.Take[string](ctx, "steered"); err != nil {
		return "", err
	}
	word, err := perdure.Receive[string](ctx, "word", "go", time.Hour)
	if err != nil {
		return "", err
	}
	if err := perdure.Emit(ctx, "said", word); err != nil {
		return "", err
	}
	if _, err := perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
		return perdure.Scope(ctx, "scope", func(ctx context.Context) (string, error) {
			return o.leaf(ctx, "/outer/scope", "pack")
		})
	}); err != nil {
		return "", err
	}
	items, err := perdure.Step(ctx, "bag", func(ctx context.Context) (int, error) {
		o.did(ctx, "/bag")
		b, err := kit.BagDep.Get(ctx)
		if err != nil {
			return 0, err
		}
		b.Mu.Lock()
		defer b.Mu.Unlock()
		b.Items = append(b.Items, in)
		return len(b.Items), nil
	})
	if err != nil {
		return "", err
	}
	tone, err := kit.Tone.Get(ctx)
	if err != nil {
		return "", err
	}
	count, err := kit.Count.Get(ctx)
	if err != nil {
		return "", err
	}
	list, err := kit.Items.Get(ctx)
	slices.Sort(list)
	return fmt.Sprint(in, " ", answer, " ", word, " ", tone, " ", count, " ", list, " ", items), err
}

// wreck is the flow "wreck": it fails at its second step.
func (o *odyssey) wreck(ctx context.Context, _ string) (string, error) {
	if _, err := o.leaf(ctx, "", "sail"); err != nil {
		return "", err
	}
	return perdure.Step(ctx, "sink", func(ctx context.Context) (string, error) {
		o.did(ctx, "/sink")
		if tone, err := kit.Tone.Get(ctx); err != nil || tone == "calm" {
			return tone, err
		}
		return "", perdure.Permanent(errors.New("a storm"))
	})
}

// linger is the flow "linger": it asks, and cleans up.
func (o *odyssey) linger(ctx context.Context, _ string) (out string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, perdure.Cleanup(ctx, "tidy", func(ctx context.Context) error {
				o.did(ctx, "/tidy")
				return nil
			}))
		}
	}()
	return perdure.Ask[string](ctx, "stay", perdure.Question{Prompt: "Stay?"})
}

func (o *odyssey) flows() []perdure.Flow {
	return []perdure.Flow{perdure.NewFlow("travel", o.travel), perdure.NewFlow("wreck", o.wreck), perdure.NewFlow("linger", o.linger), kit.EchoFlow("echo")}
}

// drive resumes what is paused on a thread, and answers and signals until all
// of its runs have ended.
func (o *odyssey) drive(k *kit.Kit, thread string) {
	k.T.Helper()
	ctx := k.T.Context()
	for range 50 {
		th, err := k.Get(ctx, thread)
		kit.NoErr(k.T, err)
		i := slices.IndexFunc(th.Runs, func(r *perdure.Run) bool { return !r.Status.Final() })
		if i < 0 {
			return
		}
		run := th.Runs[i]
		if !run.Paused.IsZero() {
			kit.NoErr(k.T, k.Resume(ctx, thread, run.ID, perdure.Note{}))
		}
		run, err = k.Wait(ctx, thread, run.ID)
		if err != nil {
			k.T.Fatalf("%v\n%s", err, k.Trace(thread))
		}
		if run.Status == perdure.Blocked {
			k.T.Fatalf("%s is blocked: %s\n%s", thread, run.Diff, k.Trace(thread))
		}
		for _, a := range run.Asks {
			answer := perdure.Answer{Value: "west"}
			if a.Kind == perdure.KindOutcome {
				answer = perdure.Answer{Decision: perdure.DecisionNotDone}
			}
			kit.NoErr(k.T, k.AnswerAsk(a.ID, answer))
		}
		for _, w := range run.Waits {
			if w.Kind == "signal" {
				kit.NoErr(k.T, k.Signal(ctx, thread, w.Signal, "now", perdure.SignalOptions{}))
			}
		}
	}
	k.T.Fatalf("%s does not end\n%s", thread, k.Trace(thread))
}

// live makes the life of a thread "t": a run of every verb that succeeds, one
// that fails, and one that is cancelled.
func (o *odyssey) live(k *kit.Kit) {
	k.T.Helper()
	k.StartOn("t", "travel", "sea")
	run := k.WaitFor("t", perdure.Suspended)
	k.MustStart(perdure.StartRequest{Thread: "t", Flow: "echo", Input: "faster", Policy: perdure.Steer})
	k.AnswerAt(run, "/right/where", perdure.Answer{Value: "west"})
	o.drive(k, "t")
	k.StartOn("t", "wreck", "")
	k.WaitFor("t", perdure.Failed)
	k.StartOn("t", "linger", "")
	k.WaitFor("t", perdure.Suspended)
	kit.NoErr(k.T, k.Cancel(k.T.Context(), "t", "", perdure.Note{By: "ann"}))
	k.WaitFor("t", perdure.Cancelled)
}

// alike expects two checkpoints to say the same, but for ids, and for what a
// fork pauses.
func alike(t *testing.T, what string, a, b *perdure.Checkpoint) {
	t.Helper()
	paused := func(s perdure.Status) perdure.Status {
		if s == perdure.Running || s == perdure.Suspended || s == perdure.Queued {
			return perdure.Paused
		}
		return s
	}
	diff := cmp.Diff(a, b, cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(perdure.Checkpoint{}, "Seq", "Time"),
		cmpopts.IgnoreFields(perdure.Thread{}, "ID", "Seq", "Created", "Updated", "Status", "Fork"),
		cmpopts.IgnoreFields(perdure.Run{}, "Thread", "Paused", "Err"),
		cmpopts.IgnoreFields(perdure.Wait{}, "Ask"),
		cmpopts.IgnoreFields(perdure.AskInfo{}, "ID", "Thread"),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Status" }, cmp.Transformer("paused", paused)))
	if diff != "" {
		t.Errorf("%s (-parent +fork):\n%s", what, diff)
	}
}

// journalBytes returns the entries of the journals of a store, one after the
// other.
func journalBytes(t *testing.T, s store.Store, name string) string {
	t.Helper()
	lines, err := store.ReadAll(context.Background(), s, name, 0)
	kit.NoErr(t, err)
	var all []byte
	for _, l := range lines {
		all = append(append(all, l.Data...), '\n')
	}
	return string(all)
}
