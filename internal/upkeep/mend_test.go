package upkeep_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// rotten is a store in which one cell is damaged, until it is written or removed.
type rotten struct {
	store.Store
	mu  sync.Mutex
	key string
}

func (s *rotten) rot(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

func (s *rotten) bad(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return key == s.key
}

func (s *rotten) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := s.Store.Get(ctx, key)
	if err == nil && s.bad(key) {
		return store.Cell{}, &store.CorruptError{Cell: key, Version: cell.Version, Reason: "it is rotten"}
	}
	return cell, err
}

func (s *rotten) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	v, err := s.Store.Put(ctx, key, value, prev)
	if err == nil && s.bad(key) {
		s.rot("")
	}
	return v, err
}

func (s *rotten) Delete(ctx context.Context, key string, prev store.Version) error {
	err := s.Store.Delete(ctx, key, prev)
	if err == nil && s.bad(key) {
		s.rot("")
	}
	return err
}

func (s *rotten) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		var damage error
		for cell, err := range s.Store.List(ctx, prefix, after) {
			if err == nil && s.bad(cell.Key) {
				_, damage = s.Get(ctx, cell.Key)
			} else if !yield(cell, err) {
				return
			}
		}
		if damage != nil {
			yield(store.Cell{}, damage)
		}
	}
}

// TestDamagedCellsAreMendedFromJournals damages each cell that follows from a
// journal. Whatever is called first finds all threads, and Rebuild mends it.
func TestDamagedCellsAreMendedFromJournals(t *testing.T) {
	ids := []string{"a", "b", "c"}
	list := func(k *kit.Kit) error {
		n := 0
		for s, err := range k.List(t.Context(), perdure.ListOptions{Asks: true}) {
			if err != nil {
				return err
			}
			if n++; s.Status != perdure.Suspended {
				return errors.New(s.ID + " is " + string(s.Status))
			}
		}
		if n != len(ids) {
			return errors.New("the list is not whole")
		}
		return nil
	}
	calls := map[string]func(k *kit.Kit, id string) error{
		"List": func(k *kit.Kit, _ string) error { return list(k) },
		"Verify": func(k *kit.Kit, id string) error {
			v, err := k.Verify(t.Context(), id)
			if err == nil && !v.OK() {
				err = errors.New(v.Problem)
			}
			return err
		},
		"Start":   func(k *kit.Kit, id string) error { k.StartOn(id, "ask", ""); return nil },
		"Rebuild": func(k *kit.Kit, _ string) error { k.MustRebuild(); return nil },
		"Answer": func(k *kit.Kit, id string) error {
			run := k.WaitForRun(id, "", perdure.Suspended)
			k.AnswerAt(run, run.Asks[0].Path, perdure.Answer{Value: "yes"})
			k.WaitForRun(id, "", perdure.Succeeded)
			return nil
		},
		"Erase": func(k *kit.Kit, id string) error { return k.Erase(t.Context(), id, perdure.EraseOptions{}) },
	}
	for _, prefix := range []string{"thread/", "id/"} {
		for call, do := range calls {
			t.Run(prefix+call, func(t *testing.T) {
				for i := range ids {
					synctest.Test(t, func(t *testing.T) {
						s := &rotten{Store: memstore.New()}
						k := kit.New(t, s, perdure.Options{}, kit.AskFlow("ask", perdure.Question{Prompt: "?"}))
						for _, id := range ids {
							k.StartOn(id, "ask", "")
							k.WaitForRun(id, "", perdure.Suspended)
						}
						synctest.Wait() // until the summaries are written
						var keys []string
						for cell, err := range s.List(t.Context(), prefix, "") {
							kit.NoErr(t, err)
							keys = append(keys, cell.Key)
						}
						s.rot(keys[i])
						for _, id := range ids { // one of them is it
							if err := do(k, id); err != nil {
								t.Errorf("%s: %v", call, err)
							}
						}
						k.MustRebuild()
						for _, id := range ids {
							if _, err := k.Get(t.Context(), id); err != nil && !(call == "Erase" && errors.Is(err, perdure.ErrNoThread)) {
								t.Errorf("%s: %v", id, err)
							}
						}
						if s.bad(keys[i]) {
							t.Error("it is not mended")
						}
					})
				}
			})
		}
	}
}

// TestRebuildGoesOnBehindDamage damages a cell that follows from nothing:
// Rebuild goes through all threads, and reports the damage at the end.
func TestRebuildGoesOnBehindDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rotten{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, kit.AskFlow("ask", perdure.Question{Prompt: "?"}))
		k.StartOn("t", "ask", "")
		k.WaitForRun("t", "", perdure.Suspended)
		for cell, err := range s.List(t.Context(), "thread/", "") { // the gate of a thread that is gone
			key := strings.Replace(cell.Key, "thread/", "gate/", 1) + "x"
			if _, putErr := s.Put(t.Context(), key, []byte("closed"), ""); putErr != nil || err != nil {
				t.Fatal(putErr, err)
			}
			s.rot(key)
		}
		got, err := k.Rebuild(t.Context())
		if !errors.Is(err, store.ErrCorrupt) || got.Threads != 1 || got.Damaged != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestDamagedValueOfAnAsk damages what a person is asked about. Every route says
// so, and so does the list, before and after the ask is answered.
func TestDamagedValueOfAnAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rotten{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, perdure.NewFlow("ask", func(ctx context.Context, in string) (string, error) {
			return perdure.Ask[string](ctx, "ask", perdure.Question{Data: in})
		}))
		k.StartOn("t", "ask", strings.Repeat("x", 100_000))
		run := k.WaitForRun("t", "", perdure.Suspended)
		synctest.Wait() // the worker, which knows of no damage, has written its summary
		for cell, err := range s.List(t.Context(), "blob/", "") {
			kit.NoErr(t, err)
			if strings.Contains(cell.Key, "/c/") {
				s.rot(cell.Key)
			}
		}
		_, getErr := k.Get(t.Context(), "t")
		_, runErr := k.GetRun(t.Context(), "t", "")
		_, askErr := k.GetAsk(t.Context(), run.Asks[0].ID)
		for what, err := range map[string]error{"Get": getErr, "GetRun": runErr, "GetAsk": askErr} {
			if !errors.Is(err, perdure.ErrCorrupt) {
				t.Errorf("%s: %v", what, err)
			}
		}
		listed := func(when string) {
			for sum, err := range k.List(t.Context(), perdure.ListOptions{}) {
				if err != nil || sum.Status != perdure.Damaged {
					t.Errorf("%s the list says %q: %v", when, sum.Status, err)
				}
			}
		}
		listed("before the answer")
		kit.NoErr(t, k.Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "yes"}}))
		if _, err := k.Wait(t.Context(), "t", ""); !errors.Is(err, perdure.ErrCorrupt) && err != nil {
			t.Error(err)
		}
		synctest.Wait()
		listed("after the answer")
	})
}
