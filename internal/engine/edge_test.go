package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestNewNamesAllThatIsWrong(t *testing.T) {
	none := func(context.Context, string) (string, error) { return "", nil }
	_, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Concurrency: -1},
		perdure.NewFlow("", none), perdure.NewFlow("a/b", none), perdure.NewFlow("twice", none), perdure.NewFlow("twice", none),
		perdure.NewFlow("\xff", none), perdure.NewFlow(strings.Repeat("x", 300), none), perdure.Flow{})
	kit.WantErr(t, "names", err, perdure.ErrName)
	kit.WantErr(t, "options", err, perdure.ErrInvalid)
	for _, want := range []string{"empty", `"a/b"`, `"twice"`, "UTF-8", "300", "NewFlow", "Options.Concurrency is -1"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if _, err := perdure.Open(t.Context(), "nothing:here"); !errors.Is(err, store.ErrScheme) {
		t.Errorf("an unknown scheme: %v", err)
	}
	rt, err := perdure.Open(t.Context(), "memory:", perdure.NewFlow("f", none))
	if err != nil || !slices.Equal(rt.Flows(), []string{"f"}) {
		t.Fatalf("open: %v", err)
	}
	kit.WantErr(t, "close", rt.Close(), nil)
	_, err = rt.Start(t.Context(), perdure.StartRequest{Flow: "f", Input: ""})
	kit.WantErr(t, "a start when it is closed", err, store.ErrClosed)
}

// failing is a store whose next append fails and says nothing about it.
type failing struct {
	store.Store
	mu   sync.Mutex
	fail func()
}

func (f *failing) Unwrap() store.Store { return f.Store }

func (f *failing) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		fail()
		return 0, errors.New("the line is dead")
	}
	return f.Store.Append(ctx, name, after, entries...)
}

func (f *failing) set(fail func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// TestStartThatWasCutOffLeavesNoThread ends a start between its hints and its
// first entry.
func TestStartThatWasCutOffLeavesNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{Store: memstore.New()}
		rt, err := perdure.New(t.Context(), f, perdure.Options{Version: "test"}, kit.EchoFlow("echo"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.set(cancel)
		q := perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", Key: "k"}
		if _, err = rt.Start(ctx, q); err == nil {
			t.Fatal("the start did not fail")
		}
		f.set(nil)
		for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
			t.Errorf("a thread without an entry is listed: %+v, %v", s, err)
		}
		_, err = rt.Get(t.Context(), "t")
		kit.WantErr(t, "get", err, perdure.ErrNoThread)
		kit.WantErr(t, "signal", rt.Signal(t.Context(), "t", "go", 1, perdure.SignalOptions{}), perdure.ErrNoThread)
		for _, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
			kit.WantErr(t, "events", err, perdure.ErrNoThread)
		}
		// A worker meets the hint, and the start can be repeated.
		k := kit.New(t, f, perdure.Options{}, kit.EchoFlow("echo"))
		time.Sleep(time.Second)
		k.MustStart(q)
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "x")
		n := 0
		for range k.List(t.Context(), perdure.ListOptions{}) {
			n++
		}
		if n != 1 {
			t.Errorf("%d threads are listed", n)
		}
	})
}

func TestConcurrentStartsWithOneKeyAndOtherInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.EchoFlow("echo"))
		var all sync.WaitGroup
		runs, errs := make([]*perdure.Run, 16), make([]error, 16)
		for i := range runs {
			all.Go(func() {
				runs[i], errs[i] = k.Start(t.Context(), perdure.StartRequest{Flow: "echo", Input: fmt.Sprint(i), Key: "key"})
			})
		}
		all.Wait()
		won := slices.Index(errs, nil)
		if won < 0 {
			t.Fatal(errs[0])
		}
		for i, err := range errs {
			if i != won {
				kit.WantErr(t, fmt.Sprint("start ", i), err, perdure.ErrKeyReused)
			}
		}
		kit.WantOutput(t, k.WaitForRun(runs[won].Thread, "", perdure.Succeeded), fmt.Sprint(won))
	})
}

// TestQuarantinedRunIsRetriedOrCancelledByAPerson writes the entries that a
// run which kills its workers leaves.
func TestQuarantinedRunIsRetriedOrCancelledByAPerson(t *testing.T) {
	for call, want := range map[string]perdure.Status{"retry": perdure.Suspended, "cancel": perdure.Cancelled} {
		kit.Bubble(t, call, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"))
			id := k.StartOn("t", "f", "").ID
			run := k.WaitFor("t", perdure.Suspended)
			k.Stop()
			name := kit.Journals(t, k.Store)[0]
			seq, prev := kit.JournalEnd(t, k.Store, name)
			body, err := (&journal.Body{Worker: "dead", Version: "test"}).Encode()
			if err != nil {
				t.Fatal(err)
			}
			claim := journal.Entry{Kind: journal.Claimed, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2, Body: body}
			first := claim.Encode(prev)
			body, err = (&journal.Body{Fail: &journal.Failure{Msg: "it killed five workers", Stack: "stack"}}).Encode()
			if err != nil {
				t.Fatal(err)
			}
			stop := journal.Entry{Kind: journal.Quarantined, ID: journal.NewID(), Time: time.Now().UnixMicro(), Run: run.Seq, Epoch: 2, Body: body}
			if _, err := k.Store.Append(t.Context(), name, seq, first, stop.Encode(claim.Hash)); err != nil {
				t.Fatal(err)
			}
			next := k.StartOn("t", "other", "x")
			k = kit.New(t, k.Store, perdure.Options{}, kit.AskFlow("f", perdure.Question{}), kit.EchoFlow("other"))
			time.Sleep(time.Minute)
			run = k.WaitForRun("t", id, perdure.Quarantined)
			if !strings.Contains(run.Error, "five workers") {
				t.Errorf("it says %q", run.Error)
			}
			kit.WantErr(t, "resume", k.Control("resume", "t", id), perdure.ErrNothingToDo)
			kit.WantErr(t, call, k.Control(call, "t", id), nil)
			run = k.WaitForRun("t", id, want)
			if call == "retry" {
				k.AnswerAt(run, "/ask", perdure.Answer{Value: "y"})
				kit.WantOutput(t, k.WaitForRun("t", id, perdure.Succeeded), "y")
			}
			kit.WantOutput(t, k.WaitForRun("t", next.ID, perdure.Succeeded), "x")
		})
	}
}

// TestRenamedDepIsAdoptedOrStartsColdVisibly follows a key through versions of
// the code.
func TestRenamedDepIsAdoptedOrStartsColdVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		var logged syncBuffer
		flow := func(name string, dep *perdure.Dep[*log]) perdure.Flow {
			return perdure.NewFlow(name, func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
					l, err := dep.Get(ctx)
					if err != nil {
						return "", err
					}
					if in != "" {
						l.add(in)
					}
					return l.text(), nil
				})
			})
		}
		k := kit.New(t, nil, perdure.Options{Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			flow("v1", newLog(on, "old")), flow("v2", newLog(on, "new", perdure.WasKey("old"))), flow("v3", newLog(on, "new")), flow("cold", newLog(on, "newest")))
		for _, c := range []struct{ flow, in, want string }{
			{"v1", "one", "one"},
			{"v2", "", "one"}, // adopted, and not changed
			{"v3", "two", "one,two"},
			{"cold", "", ""},
		} {
			k.StartOn("t", c.flow, c.in)
			out, err := perdure.Output[string](k.WaitFor("t", perdure.Succeeded))
			if out != c.want || err != nil {
				t.Errorf("%s: %q, %v; want %q", c.flow, out, err, c.want)
			}
		}
		k.Stop()
		if text := logged.String(); !strings.Contains(text, "cold") || !strings.Contains(text, "newest") {
			t.Errorf("nobody was told of the cold start:\n%s", text)
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestSharedDepIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &logs{}
		slow := perdure.NewDep("slow", func(context.Context) (*log, error) {
			time.Sleep(time.Second)
			on.note("make")
			return &log{on: on, name: "slow"}, nil
		}, perdure.Shared())
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			g := perdure.NewGroup(ctx)
			for i := range 8 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error { _, err := slow.Get(ctx); return err })
			}
			return true, g.Wait()
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		if !slices.Equal(on.did, []string{"make", "close slow"}) {
			t.Errorf("it was %q", on.did)
		}
	})
}

// shy is a dep whose every method goes wrong.
type shy struct{ *log }

func (s *shy) Close() error { panic("cannot close") }

func (s *shy) StateVersion() uint64 { panic("cannot count") }

func (s *shy) Dump(context.Context) (json.RawMessage, error) {
	panic("cannot dump")
}

func TestDepThatPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("shy", func(context.Context) (*shy, error) { return &shy{&log{on: &logs{}}}, nil })
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			return perdure.Step(ctx, "s", func(ctx context.Context) (bool, error) {
				_, err := dep.Get(ctx)
				time.Sleep(12 * time.Second) // dumps are tried inside it too
				return true, err
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), true)
		if p := k.ProblemsOf("t"); len(p) == 0 {
			t.Error("nobody was told")
		}
	})
}
