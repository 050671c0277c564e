package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// scribble is a random flow that changes state in every kind of frame, and
// reads all of it in between.
type scribble struct {
	t     *testing.T
	now   func() map[string]json.RawMessage // the thread's state, as of now
	mu    sync.Mutex
	reads map[string]string // by place, as first read
	again int               // how many places were passed again
	kinds map[string]int
	tries map[string]int
}

var scribbled = []string{"a", "b", "c"}

// read returns all keys as a frame sees them.
func (s *scribble) read(ctx context.Context) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, key := range scribbled {
		v, ok, err := perdure.NewState[json.RawMessage](key).Lookup(ctx)
		if err != nil {
			s.t.Errorf("key %s: %v", key, err)
		}
		if ok {
			all[key] = v
		}
	}
	return all
}

// pass reads at a place, which has to show the same in every pass.
func (s *scribble) pass(ctx context.Context, place string, outermost bool) {
	got := s.read(ctx)
	text := asJSON(got)
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.reads[place]; ok {
		s.again++
		if was != text {
			s.t.Errorf("%s: first read as %s, then as %s", place, was, text)
		}
		return
	}
	s.reads[place] = text
	if outermost { // no branch is open: what is read is what is recorded
		if d := cmp.Diff(s.now(), got); d != "" {
			s.t.Errorf("%s: the flow and the thread differ: %s", place, d)
		}
	}
}

func (s *scribble) saw(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[kind]++
}

// block does some random things in a frame. The plan is a function of the
// place alone, as flow code has to be.
func (s *scribble) block(ctx context.Context, place string, depth int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, uint64(len(place))*1000003+uint64(depth)))
	outermost := !strings.Contains(place, "|")
	for i := range 2 + rng.IntN(4) {
		name := fmt.Sprint("n", i)
		at := place + "/" + name
		next := rng.Uint64()
		kind := rng.IntN(10)
		if depth == 0 {
			kind %= 5
		}
		var err error
		switch kind {
		case 0, 1, 2, 3:
			_, err = perdure.Step(ctx, name, func(ctx context.Context) (int, error) { return 0, s.change(ctx, next) })
		case 4:
			s.saw("sleep")
			err = perdure.Sleep(ctx, name, time.Second)
		case 5, 6:
			s.saw("scope")
			_, err = perdure.Scope(ctx, name, func(ctx context.Context) (int, error) { return 0, s.block(ctx, at, depth-1, next) })
		case 7:
			_, err = perdure.Step(ctx, name, func(ctx context.Context) (int, error) {
				if err := s.block(ctx, at, depth-1, next); err != nil {
					return 0, err
				}
				s.mu.Lock()
				s.tries[at]++
				failed := s.tries[at] <= int(next%3)
				s.mu.Unlock()
				if failed {
					s.saw("failed attempt")
					return 0, errors.New("again")
				}
				return 0, nil
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
		default:
			s.saw("group")
			g := perdure.NewGroup(ctx)
			for b := range 2 + int(next%2) {
				branch := fmt.Sprint(name, "-", b)
				g.Go(branch, func(ctx context.Context) error {
					return s.block(ctx, place+"|"+branch, depth-1, next+uint64(b))
				})
			}
			err = g.Wait()
		}
		if err != nil {
			return err
		}
		s.pass(ctx, at, outermost)
	}
	return nil
}

// change makes one random change, or a few.
func (s *scribble) change(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	var errs []error
	for range 1 + rng.IntN(2) {
		switch v := rng.IntN(100); rng.IntN(5) {
		case 0:
			s.saw("set")
			errs = append(errs, perdure.NewState[int]("a").Set(ctx, v))
		case 1:
			s.saw("delete")
			errs = append(errs, perdure.NewState[int]("a").Delete(ctx))
		case 2:
			s.saw("add")
			errs = append(errs, perdure.NewCounter("b").Add(ctx, int64(v)))
		case 3:
			s.saw("append")
			errs = append(errs, perdure.NewList[int]("c").Append(ctx, v))
		default:
			s.saw("set list")
			errs = append(errs, perdure.NewState[[]int]("c").Set(ctx, []int{v}))
		}
	}
	return errors.Join(errs...)
}

// TestStateOfRandomFlowsIsStableAndTrue compares what flow code reads with
// what the thread says, and each pass with the first.
func TestStateOfRandomFlowsIsStableAndTrue(t *testing.T) {
	kinds, again := map[string]int{}, 0
	for seed := range uint64(20) {
		kit.Bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			s := &scribble{t: t, reads: map[string]string{}, kinds: kinds, tries: map[string]int{}}
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
				return true, s.block(ctx, "", 2, seed)
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			s.now = func() map[string]json.RawMessage {
				c, err := k.StateAt(context.Background(), "t", 0)
				if err != nil {
					t.Error(err)
					return nil
				}
				return c.State
			}
			k.StartOn("t", "f", "")
			k.WaitFor("t", perdure.Succeeded)
			k.Stop()
			again += s.again
		})
	}
	for _, kind := range []string{"sleep", "scope", "group", "failed attempt", "set", "delete", "add", "append", "set list"} {
		if kinds[kind] == 0 {
			t.Errorf("no flow had a %s", kind)
		}
	}
	if again == 0 {
		t.Error("no place was passed twice")
	}
}

// TestNothingFromOutsideIsLost lets many callers talk to one run at once.
func TestNothingFromOutsideIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 4, 8
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) ([]string, error) {
			var all []string
			for i := range senders * each {
				v, err := perdure.Receive[string](ctx, fmt.Sprint("r", i), "go", 0)
				if err != nil {
					return nil, err
				}
				all = append(all, v)
				if i%7 == 0 {
					if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) {
						time.Sleep(3 * time.Millisecond)
						return i, nil
					}); err != nil {
						return nil, err
					}
				}
			}
			return all, nil
		})
		k := kit.New(t, nil, perdure.Options{}, flow, kit.EchoFlow("echo"))
		run := k.StartOn("t", "f", "")
		var all sync.WaitGroup
		var want, queued []string
		var mu sync.Mutex
		for s := range senders {
			all.Go(func() {
				for i := range each {
					v := fmt.Sprint(s, "-", i)
					if err := k.Signal(t.Context(), "t", "go", v, perdure.SignalOptions{Key: v}); err != nil {
						t.Error(err)
					}
					// A repeat, as after a lost answer, has no effect.
					if err := k.Signal(t.Context(), "t", "go", v, perdure.SignalOptions{Key: v}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					want = append(want, v)
					mu.Unlock()
					time.Sleep(time.Duration(s+1) * time.Millisecond)
				}
			})
		}
		all.Go(func() {
			for i := range 15 {
				err := k.Control([]string{"pause", "resume"}[i%2], "t", run.ID)
				if err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
					t.Error(err)
				}
				time.Sleep(4 * time.Millisecond)
			}
			_ = k.Control("resume", "t", run.ID)
		})
		all.Go(func() {
			for i := range 10 {
				r, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				queued = append(queued, r.ID)
				if err := k.SetMetadata(t.Context(), "t", nil, map[string]string{"n": fmt.Sprint(i)}, perdure.Note{}); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		all.Wait()
		_ = k.Control("resume", "t", run.ID)
		got, err := perdure.Output[[]string](k.WaitForRun("t", run.ID, perdure.Succeeded))
		kit.NoErr(t, err)
		slices.Sort(got)
		slices.Sort(want)
		kit.NoDiff(t, cmp.Diff(want, got))
		for i, id := range queued {
			kit.WantOutput(t, k.WaitForRun("t", id, perdure.Succeeded), fmt.Sprint(i))
		}
		thread, err := k.Get(t.Context(), "t")
		if err != nil || thread.Metadata["n"] != "9" || thread.Status != perdure.Succeeded {
			t.Errorf("in the end: %+v, %v", thread, err)
		}
		for i, e := range k.EventsOf("t") {
			if e.Seq != uint64(i+1) {
				t.Fatalf("event %d has the number %d", i+1, e.Seq)
			}
		}
	})
}
