package threads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// onStores runs a test on a store in memory, on one in a file and on one in PostgreSQL.
func onStores(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memstore", func(t *testing.T) { test(t, memstore.New()) })
	t.Run("sqlitestore", func(t *testing.T) {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlitestore.Options{})
		kit.NoErr(t, err)
		defer s.Close()
		test(t, s)
	})
	t.Run("pgstore", func(t *testing.T) {
		s, err := pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), t.TempDir()), pgstore.Options{})
		kit.NoErr(t, err)
		defer s.Close()
		test(t, s)
	})
}

// process is a runtime with a worker, as another process would have it.
func process(t *testing.T, s store.Store, flows ...perdure.Flow) *kit.Kit {
	k := kit.New(t, s, perdure.Options{Lease: 5 * time.Second}, flows...)
	t.Cleanup(k.Stop) // before the store is closed
	return k
}

// asFolded expects a runtime to report a thread as one without kept folds and
// snapshots does.
func asFolded(t *testing.T, what, thread string, k *kit.Kit, s store.Store, flows ...perdure.Flow) {
	t.Helper()
	sameThread(t, what, thread, reader(t, s, blind, flows...), k)
}

// TestKeptFoldsFollowOtherProcesses: a process that keeps the fold of a thread sees
// whatever another process does to the thread.
func TestKeptFoldsFollowOtherProcesses(t *testing.T) {
	flows := []perdure.Flow{stretch(20), kit.Ledger}
	onStores(t, func(t *testing.T, s store.Store) {
		a := kit.Runtime(t, s, perdure.Options{}, flows...)
		here := &kit.Kit{Runtime: a, T: t, Store: s}
		there := process(t, s, flows...)
		defer there.Stop()
		for i := range 5 {
			there.StartOn("t", "stretch", fmt.Sprint("run ", i))
			there.WaitFor("t", perdure.Succeeded)
			asFolded(t, "after a run", "t", here, s, flows...)
		}
		fork, err := there.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "fork", At: 70})
		kit.NoErr(t, err)
		asFolded(t, "a fork", fork.Thread, here, s, flows...)
		asFolded(t, "beside a fork", "t", here, s, flows...)
		there.MustRewind("t", 24)
		asFolded(t, "a rewind", "t", here, s, flows...)
		failed := there.StartOn("t", "stretch", "fail")
		there.WaitFor("t", perdure.Failed)
		asFolded(t, "a failure", "t", here, s, flows...)
		kit.NoErr(t, there.Retry(t.Context(), "t", failed.ID, perdure.Note{}))
		there.WaitForRun("t", failed.ID, perdure.Failed)
		asFolded(t, "a retry", "t", here, s, flows...)
		there.NoteInLedger("t", "noted")
		asFolded(t, "a change", "t", here, s, flows...)
		asFolded(t, "the fork", fork.Thread, here, s, flows...)
		names := kit.Journals(t, s)
		kit.NoErr(t, there.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}))
		for _, id := range []string{"t", fork.Thread} {
			_, err := here.Get(t.Context(), id)
			kit.WantErr(t, "get an erased thread", err, perdure.ErrNoThread)
		}
		_, err = threads.Behind(a).All.Read(t.Context(), strings.TrimPrefix(names[0], threads.JournalKey("")))
		kit.WantErr(t, "read an erased thread", err, perdure.ErrErased)
		here.MustStart(perdure.StartRequest{Thread: "t", Flow: "stretch", Input: "again"})
		there.WaitFor("t", perdure.Succeeded)
		asFolded(t, "another thread with the id", "t", here, s, flows...)
	})
}

// TestCallersOwnWhatTheyGet: callers that modify a returned value do not change
// kept folds.
func TestCallersOwnWhatTheyGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := kit.AskFlow("ask", perdure.Question{Data: "what", Decisions: []string{"yes", "no"}, Who: []string{"ann"}})
		flows := []perdure.Flow{stretch(30), asks, kit.Ledger}
		k := kit.New(t, nil, perdure.Options{}, flows...)
		k.NoteInLedger("t", "noted")
		for _, in := range []string{"fine", "fail", "fine"} {
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "stretch", Input: in, Budget: map[string]int64{"tokens": 10}, Metadata: map[string]string{"a": "b"}})
			_, err := k.Wait(t.Context(), "t", "")
			kit.NoErr(t, err)
		}
		k.StartOn("t", "ask", "")
		ask := k.WaitFor("t", perdure.Suspended).Asks[0]
		answer := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Decision: "yes", Value: "said", By: "ann"}}
		kit.NoErr(t, k.Answer(t.Context(), answer))
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		for range 2 {
			thread, err := k.Get(t.Context(), "t")
			kit.NoErr(t, err)
			state, err := k.StateAt(t.Context(), "t", 0)
			kit.NoErr(t, err)
			asked, err := k.GetAsk(t.Context(), ask.ID)
			kit.NoErr(t, err)
			for _, v := range []any{thread, state, asked} {
				scribble(reflect.ValueOf(v), 0)
			}
			asFolded(t, "scribbled on", "t", k, k.Store, flows...)
			fresh, err := reader(t, k.Store, blind, flows...).GetAsk(t.Context(), ask.ID)
			kit.NoErr(t, err)
			again, err := k.GetAsk(t.Context(), ask.ID)
			kit.NoErr(t, err)
			if diff := cmp.Diff(fresh, again); diff != "" {
				t.Fatalf("the ask is another:\n%s", diff)
			}
		}
	})
}

// scribble overwrites everything reachable from a value.
func scribble(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && depth < 20 {
			if raw, ok := v.Interface().(json.RawMessage); ok {
				scribble(reflect.ValueOf(raw), depth+1)
			} else {
				scribble(v.Elem(), depth+1)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scribble(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i), depth+1)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			scribble(v.MapIndex(key), depth+1)
			v.SetMapIndex(key, reflect.Value{})
		}
	case reflect.Uint8:
		if v.CanSet() {
			v.SetUint('!')
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("!")
		}
	}
}

// TestKeptFoldsAreBounded: the folds of many long threads do not exceed the limit,
// and the most recently used are kept.
func TestKeptFoldsAreBounded(t *testing.T) {
	s := memstore.New()
	c, err := threads.New(t.Context(), s, slog.New(slog.DiscardHandler), time.Second)
	kit.NoErr(t, err)
	const large = 1 << 20
	body := []byte(fmt.Sprintf(`{"name":"n","val":%q}`, strings.Repeat("x", large/threads.MinSnapshot)))
	for i := range 100 {
		o := threads.Empty(fmt.Sprint("name-", i))
		var head journal.Hash
		for seq := uint64(1); seq <= threads.MinSnapshot; seq++ {
			e := journal.Entry{Seq: seq, Kind: journal.Signal, Body: body}
			e.Encode(head)
			head = e.Hash
			kit.NoErr(t, o.Thread.Apply(e))
		}
		c.Keep(o)
		if bytes, n := c.KeptBytes(); bytes > 64<<20 || n == 0 || n > 64 {
			t.Fatalf("%d folds with %d bytes are kept", n, bytes)
		}
	}
	if _, n := c.KeptBytes(); n < 32 {
		t.Errorf("only %d folds are kept", n)
	}
}

// readBytes returns how many bytes were read from a store.
func readBytes(stats *observed.Stats) (bytes int64) {
	for _, op := range stats.Snapshot() {
		if !op.Op.Writes() {
			bytes += op.Bytes
		}
	}
	return bytes
}

// asker is a flow that takes as many steps between questions as its input says.
var asker = perdure.NewFlow("asker", func(ctx context.Context, questions int) (answers []string, err error) {
	for i := range questions {
		said, err := perdure.Ask[string](ctx, fmt.Sprint("ask", i), perdure.Question{Prompt: "And now?"})
		if err == nil {
			_, err = perdure.Step(ctx, fmt.Sprint("step", i), func(ctx context.Context) (string, error) { return said, kit.Count.Add(ctx, 1) })
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, said)
	}
	return answers, nil
})

// TestRunsBesideASuspendedOneReadLittle: runs beside one that waits, and signals to
// it, read the same amount however much has happened since it began to wait.
func TestRunsBesideASuspendedOneReadLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stats := new(observed.Stats)
		k := kit.New(t, observed.New(memstore.New(), stats), perdure.Options{}, stretch(3), asker)
		waits := k.StartOn("t", "asker", 1)
		k.WaitForRun("t", waits.ID, perdure.Suspended)
		var costs []int64
		for i := range 120 {
			before := readBytes(stats)
			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "stretch", Input: "in", Policy: perdure.Beside})
			_, err := k.WaitEnd(t.Context(), "t", run.ID)
			kit.NoErr(t, err)
			kit.NoErr(t, k.Signal(t.Context(), "t", "news", i, perdure.SignalOptions{}))
			synctest.Wait()
			costs = append(costs, readBytes(stats)-before)
		}
		median := func(list []int64) int64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
		if young, old := median(costs[20:31]), median(costs[109:]); old > young+young/2 {
			t.Errorf("a turn reads %d bytes early and %d late", young, old)
		}
		waits, err := k.GetRun(t.Context(), "t", waits.ID)
		kit.NoErr(t, err)
		kit.NoErr(t, k.AnswerAsk(waits.Asks[0].ID, perdure.Answer{Value: "go", By: "ann"}))
		if run := k.WaitForRun("t", waits.ID, perdure.Succeeded); string(run.Output) != `["go"]` {
			t.Errorf("the output is %s", run.Output)
		}
	})
}

// TestFoldsWithActiveRunsFollowOthers has two processes start, answer, signal,
// cancel, pause and resume at random on one thread whose runs wait. What each of
// them keeps agrees with the journal.
func TestFoldsWithActiveRunsFollowOthers(t *testing.T) {
	flows := []perdure.Flow{stretch(3), asker}
	onStores(t, func(t *testing.T, s store.Store) {
		here, there := process(t, s, flows...), process(t, s, flows...)
		defer there.Stop()
		defer here.Stop()
		here.StartOn("t", "asker", 3)
		for i := range 60 {
			k := []*kit.Kit{here, there}[rand.N(2)]
			thread, err := k.Get(t.Context(), "t")
			kit.NoErr(t, err)
			var asks []perdure.AskInfo
			for _, run := range thread.Runs {
				asks = append(asks, run.Asks...)
			}
			switch rand.N(8) {
			case 0:
				_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "asker", Input: 2, Policy: perdure.Beside})
			case 1, 2, 3:
				_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "stretch", Input: "in", Policy: perdure.Beside})
			case 4, 5:
				if len(asks) > 0 {
					err = k.AnswerAsk(asks[rand.N(len(asks))].ID, perdure.Answer{Value: fmt.Sprint(i), By: "ann"})
				}
			case 6:
				err = k.Signal(t.Context(), "t", "news", i, perdure.SignalOptions{Key: fmt.Sprint(i)})
			case 7:
				switch run := thread.Runs[rand.N(len(thread.Runs))]; {
				case run.Status.Final():
				case rand.N(2) == 0:
					err = k.Cancel(t.Context(), "t", run.ID, perdure.Note{})
				default:
					if err = k.Pause(t.Context(), "t", run.ID, perdure.Note{}); err == nil {
						err = k.Resume(t.Context(), "t", run.ID, perdure.Note{})
					}
				}
			}
			// The run may have been answered or cancelled meanwhile.
			for _, may := range []error{perdure.ErrAskOver, perdure.ErrAnswered, perdure.ErrNothingToDo, perdure.ErrNoAsk} {
				if errors.Is(err, may) {
					err = nil
				}
			}
			kit.NoErr(t, err)
			thread, err = k.Get(t.Context(), "t")
			kit.NoErr(t, err)
			for _, run := range thread.Runs {
				if _, err := k.Wait(t.Context(), "t", run.ID); err != nil && !errors.Is(err, perdure.ErrRunNotFound) {
					t.Fatal(err)
				}
			}
		}
		blind := reader(t, s, blind, flows...)
		for _, k := range []*kit.Kit{here, there} {
			thread, err := blind.Get(t.Context(), "t")
			kit.NoErr(t, err)
			for _, want := range thread.Runs {
				got, err := k.Wait(t.Context(), "t", want.ID)
				kit.NoErr(t, err)
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(perdure.Run{}, "Err")); diff != "" {
					t.Errorf("run %s is another:\n%s", want.ID, diff)
				}
			}
		}
	})
}

// TestAnOldThreadIsNotReadAgain: how much a turn and a look at a thread read does
// not depend on the thread's age.
func TestAnOldThreadIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stats := new(observed.Stats)
		k := kit.New(t, observed.New(memstore.New(), stats), perdure.Options{}, stretch(10))
		var costs []int64
		for range 120 {
			before := readBytes(stats)
			k.StartOn("t", "stretch", "in")
			k.WaitFor("t", perdure.Succeeded)
			_, err := k.GetRun(t.Context(), "t", "")
			kit.NoErr(t, err)
			synctest.Wait()
			costs = append(costs, readBytes(stats)-before)
		}
		// A turn may write a snapshot, and its run is read again up to twice, depending
		// on who comes first: the worker or the one who asks.
		young, old := slices.Sorted(slices.Values(costs[10:21]))[5], slices.Min(costs[109:])
		if old > young+young/2 {
			t.Errorf("a turn reads %d bytes early and %d late", young, old)
		}
	})
}

// foreseeing is a store that compares each summary written with entries to the one
// that follows from the journal.
type foreseeing struct {
	store.Store
	t    *testing.T
	mu   sync.Mutex
	seen map[journal.Status]int
}

func (f *foreseeing) Unwrap() store.Store { return f.Store }

func (f *foreseeing) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	last, err := f.Store.(store.Batcher).AppendBatch(ctx, b)
	if err != nil {
		return last, err
	}
	for _, w := range b.Cells {
		if w.Key != b.Journal {
			continue
		}
		fresh, err := threads.New(ctx, f.Store, slog.New(slog.DiscardHandler), time.Second)
		kit.NoErr(f.t, err)
		o, err := fresh.ReadAt(ctx, strings.TrimPrefix(b.Journal, threads.JournalKey("")), last)
		kit.NoErr(f.t, err)
		var foreseen threads.Summary
		kit.NoErr(f.t, json.Unmarshal(w.Value, &foreseen))
		if diff := cmp.Diff(threads.SummaryOf(o.Thread), foreseen, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(threads.Summary{}, "Indexed", "StatusSeq", "MetaSeq")); diff != "" {
			f.t.Errorf("after entry %d the foreseen summary is wrong (-folded +foreseen):\n%s", last, diff)
		}
		f.mu.Lock()
		f.seen[foreseen.Status]++
		f.mu.Unlock()
	}
	return last, nil
}

// TestForeseenSummariesAreTheFolded: whatever is done to a thread, the summaries
// written with its entries are those that folding them gives.
func TestForeseenSummariesAreTheFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &foreseeing{Store: memstore.New(), t: t, seen: map[journal.Status]int{}}
		k := kit.New(t, f, perdure.Options{}, stretch(3), kit.AskFlow("ask", perdure.Question{}), kit.Hear, kit.Ledger)
		random := rand.New(rand.NewPCG(1, 2))
		ctx := t.Context()
		policies := []perdure.Policy{perdure.Enqueue, perdure.Interrupt, perdure.Steer, perdure.Beside}
		for i := range kit.Sized(400, 600, 1500) {
			thread := fmt.Sprint("t", random.IntN(4))
			var runs []*perdure.Run
			if now, err := k.Get(ctx, thread); err == nil {
				runs = now.Runs
			}
			pick := func() string {
				if len(runs) == 0 {
					return ""
				}
				return runs[max(0, len(runs)-1-random.IntN(3))].ID
			}
			// Operations may be refused.
			switch random.IntN(10) {
			case 0, 1, 2:
				q := perdure.StartRequest{Thread: thread, Flow: []string{"stretch", "ask", "hear"}[random.IntN(3)], Input: "", Policy: policies[random.IntN(len(policies))]}
				if q.Flow == "stretch" {
					q.Input = []string{"fine", "fail"}[random.IntN(2)]
				}
				_, _ = k.Start(ctx, q)
			case 3:
				for _, run := range runs {
					for _, ask := range run.Asks {
						_ = k.AnswerAsk(ask.ID, perdure.Answer{Value: "x"})
					}
				}
			case 4:
				_ = k.Signal(ctx, thread, "go", fmt.Sprint(i), perdure.SignalOptions{})
			case 5:
				_ = k.Cancel(ctx, thread, pick(), perdure.Note{})
			case 6:
				if random.IntN(3) == 0 {
					_ = k.Pause(ctx, thread, pick(), perdure.Note{})
				}
			case 7:
				for _, run := range runs {
					_ = k.Resume(ctx, thread, run.ID, perdure.Note{})
				}
			case 8:
				_ = k.Retry(ctx, thread, pick(), perdure.Note{})
			case 9:
				title := fmt.Sprint("title ", i)
				_ = k.SetMetadata(ctx, thread, &title, nil, perdure.Note{})
			}
			if random.IntN(2) == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, status := range []journal.Status{journal.StatusQueued, journal.StatusRunning, journal.StatusSuspended, journal.StatusSucceeded, journal.StatusFailed, journal.StatusCancelled, journal.StatusPaused} {
			if f.seen[status] == 0 {
				t.Errorf("no summary with the status %s was foreseen", status)
			}
		}
		t.Log(f.seen)
	})
}
