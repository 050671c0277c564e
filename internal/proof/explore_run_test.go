package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

var exploredReceive = perdure.NewFlow("receive", func(ctx context.Context, _ string) (string, error) {
	return perdure.Receive[string](ctx, "wait", "go", 0)
})

func signalling(key string) func(context.Context, *perdure.Runtime) error {
	return func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Signal(ctx, "t", "go", "yes", perdure.SignalOptions{Key: key})
	}
}

// signalled judges a run that one sender signals: what is in the journal is
// received, whether it came before the receive or behind it.
func (sc *scene) signalled(sender *explore.Actor) (string, error) {
	switch {
	case sc.count("signal") == 1 && sc.count("received") == 1:
		return "buffered", sc.ends("yes")
	case sc.count("signal") == 1:
		return "received", sc.ends("yes")
	case sender.Killed():
		return "nothing", sc.is(perdure.Suspended)
	}
	return "", fmt.Errorf("%d signals, the sender got: %w", sc.count("signal"), sender.Err())
}

// receiving is a run from its first claim on, which suspends for a signal that
// arrives before, meanwhile or behind.
func (sc *scene) receiving() func() (string, error) {
	sc.open(exploredReceive)
	sc.start()
	sender := sc.outside("sender", signalling(""))
	sc.workers(sender)
	return func() (string, error) { return sc.signalled(sender) }
}

// receivingAgain is a run that is executed once more up to where it waits.
func (sc *scene) receivingAgain() func() (string, error) {
	sc.open(exploredReceive)
	sc.start()
	sc.work()
	sc.again()
	sender := sc.outside("sender", signalling(""))
	sc.workers(sender)
	return func() (string, error) { return sc.signalled(sender) }
}

func TestExploredSignalIsNeverMissed(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).receiving, "buffered", "received")
	exploreAll(t, explore.Config{}, (*scene).receivingAgain, "received")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 1}, (*scene).receiving, "buffered", "received", "nothing")
		exploreAll(t, explore.Config{Crashes: 1}, (*scene).receivingAgain, "received", "nothing")
	}
}

// timingOut is a receive whose time is over when a worker sees it and a signal
// arrives.
func (sc *scene) timingOut() func() (string, error) {
	sc.open(perdure.NewFlow("receive", func(ctx context.Context, _ string) (string, error) {
		got, err := perdure.Receive[string](ctx, "wait", "go", time.Minute)
		if errors.Is(err, perdure.ErrTimeout) {
			return "too late", nil
		}
		return got, err
	}))
	sc.start()
	sc.work()
	time.Sleep(time.Minute)
	sender := sc.outside("sender", signalling(""))
	sc.workers(sender)
	return func() (string, error) {
		kinds := sc.kinds()
		signal, fired := slices.Index(kinds, "signal"), slices.Index(kinds, "fired")
		switch {
		case signal < 0 && !sender.Killed() || sender.Err() != nil && !sender.Killed():
			return "", fmt.Errorf("the sender got %w", sender.Err())
		case fired < 0:
			return "received", sc.ends("yes")
		case signal >= 0 && signal < fired:
			return "", errors.New("the time was over behind the signal")
		}
		return "too late", sc.ends("too late")
	}
}

func TestExploredSignalOrTimeoutWins(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).timingOut, "received", "too late")
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).timingOut, "received", "too late")
}

func TestExploredSignalsWithOneKeyAreOne(t *testing.T) {
	twice := func(sc *scene) func() (string, error) {
		sc.open(exploredReceive)
		sc.start()
		a := sc.outside("a", signalling("k"))
		b := sc.outside("b", signalling("k"))
		return func() (string, error) {
			if n := sc.count("signal"); n != 1 || a.Err() != nil || b.Err() != nil {
				return "", fmt.Errorf("%d signals, the senders got %v and %v", n, a.Err(), b.Err())
			}
			sc.work()
			return "one", sc.ends("yes")
		}
	}
	exploreAll(t, explore.Config{}, twice, "one")
	exploreAll(t, explore.Config{Unknowns: 1}, twice, "one")
}

// cancelling is a run of one step that somebody cancels: before its claim, in
// its step, before its end, or too late.
func (sc *scene) cancelling() func() (string, error) {
	ran := 0
	sc.open(perdure.NewFlow("work", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "work", func(ctx context.Context) (string, error) {
			err := explore.Point(ctx, "work")
			ran++
			return "done", err
		})
	}))
	sc.start()
	person := sc.outside("person", func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Cancel(ctx, "t", "", perdure.Note{})
	})
	sc.workers(person)
	return func() (string, error) {
		kinds, err := sc.kinds(), person.Err()
		cancel, ended := slices.Index(kinds, "cancel"), slices.Index(kinds, "ended")
		switch {
		case cancel < 0 && (errors.Is(err, perdure.ErrNothingToDo) || person.Killed()):
			return "succeeded", sc.ends("done")
		case cancel < 0 || err != nil && !person.Killed():
			return "", fmt.Errorf("the person got %w", err)
		case ended >= 0 && ended < cancel:
			return "", errors.New("the cancel is behind the end")
		case ended < 0 && ran > 0:
			return "", errors.New("it ran and has no end")
		case ran == 0:
			return "never ran", sc.is(perdure.Cancelled)
		case sc.count("step") > 0:
			return "cancelled with its step", sc.is(perdure.Cancelled)
		}
		return "cancelled", sc.is(perdure.Cancelled)
	}
}

// cancellingAsked is a run that waits for an answer and is cancelled; with an
// answer it is one or the other.
func cancellingAsked(answer bool) plot {
	return func(sc *scene) func() (string, error) {
		sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
		sc.start()
		ask := sc.work().Asks[0].ID
		boss := sc.outside("boss", func(ctx context.Context, rt *perdure.Runtime) error {
			return rt.Cancel(ctx, "t", "", perdure.Note{})
		})
		others := []*explore.Actor{boss}
		if answer {
			others = append(others, sc.outside("person", replying(ask, "yes", "")))
		}
		sc.workers(others...)
		return func() (string, error) {
			if answer {
				if err := others[1].Err(); err != nil && !errors.Is(err, perdure.ErrAskOver) {
					return "", fmt.Errorf("the person got %w", err)
				}
			}
			switch err := boss.Err(); {
			case sc.count("cancel") == 1 && (err == nil || boss.Killed()):
				return "cancelled", sc.is(perdure.Cancelled)
			case sc.count("cancel") == 0 && answer && errors.Is(err, perdure.ErrNothingToDo):
				return "answered", sc.ends("yes")
			case sc.count("cancel") == 0 && boss.Killed():
				return "suspended", sc.is(perdure.Suspended)
			default:
				return "", fmt.Errorf("the boss got %w", err)
			}
		}
	}
}

func TestExploredCancelOfASuspendedRunIsNeverMissed(t *testing.T) {
	exploreAll(t, explore.Config{Delays: 1}, cancellingAsked(false), "cancelled")
	exploreAll(t, explore.Config{Crashes: 1}, cancellingAsked(false), "cancelled", "suspended")
	if exploreTorture {
		exploreAll(t, explore.Config{}, cancellingAsked(true), "cancelled", "answered")
	}
}

func TestExploredCancelOrEndWins(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).cancelling, "succeeded", "never ran", "cancelled with its step")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 1}, (*scene).cancelling, "succeeded", "never ran", "cancelled with its step", "cancelled")
	}
}

// queuedBehind is a run that ends while another waits behind it, of a flow that
// another worker has. That worker may look before, and find nothing to do.
func (sc *scene) queuedBehind() func() (string, error) {
	sc.open(exploredEcho)
	sc.start()
	behind := perdure.NewFlow("behind", func(context.Context, string) (string, error) { return "done", nil })
	other, err := perdure.New(context.Background(), sc.w.Store(), perdure.Options{Version: "test"}, behind)
	sc.must(err)
	_, err = other.Start(context.Background(), perdure.StartRequest{Thread: "t", Flow: "behind", Input: "in"})
	sc.must(err)
	sc.undisturbed(behind) // it is not its turn
	sc.workers()
	return func() (string, error) {
		sc.undisturbed(behind)
		return "found", sc.ends("done")
	}
}

func TestExploredRunBehindAnotherIsFound(t *testing.T) {
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).queuedBehind, "found")
}

// slowly is the store of an actor whose first append is on its way for longer
// than a worker waits for what was announced.
type slowly struct {
	store.Store
	before bool
}

func (s *slowly) Unwrap() store.Store { return s.Store }

func (s *slowly) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	if !s.before {
		s.before = true
		time.Sleep(2 * exploredLease)
	}
	return s.Store.Append(ctx, journal, after, entries...)
}

// slow is a person whose answer is announced long before it is written, or
// never is.
func (sc *scene) slow() func() (string, error) {
	sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
	sc.start()
	ask := sc.work().Asks[0].ID
	person := sc.w.Actor("person", func(ctx context.Context, s store.Store) error {
		rt, err := sc.runtime(ctx, &slowly{Store: sc.lean(ctx, s)})
		if err != nil {
			return err
		}
		return replying(ask, "yes", "")(ctx, rt)
	})
	sc.worker("worker").Reliable()
	return func() (string, error) {
		for cell, err := range sc.w.Store().List(context.Background(), "due/", "") {
			return "", fmt.Errorf("hint %s is left, %v", cell.Value, err)
		}
		return sc.answered(person)
	}
}

func TestExploredSlowWriterMeetsANudge(t *testing.T) {
	exploreAll(t, explore.Config{MaxTime: 5 * exploredLease}, (*scene).slow, "answered")
	exploreAll(t, explore.Config{MaxTime: 5 * exploredLease, Crashes: 1}, (*scene).slow, "answered", "unanswered")
}

// deaf is a store that shows no sign of life of any worker: each takes all
// others for dead.
type deaf struct{ store.Store }

func (s deaf) Unwrap() store.Store { return s.Store }

func (s deaf) Get(ctx context.Context, key string) (store.Cell, error) {
	if strings.HasPrefix(key, "worker/") {
		return store.Cell{}, store.ErrNotFound
	}
	return s.Store.Get(ctx, key)
}

// claiming is a queued run and two workers.
func (sc *scene) claiming() func() (string, error) {
	ran := 0
	inside := sc.flaw.worker == nil || exploreTorture
	sc.open(perdure.NewFlow("work", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "work", func(ctx context.Context) (_ string, err error) {
			if inside { // what happens inside the step is explored too
				err = explore.Point(ctx, "work")
			}
			ran++
			return "done", err
		})
	}))
	sc.start()
	a := sc.worker("a")
	b := sc.worker("b")
	return func() (string, error) {
		claims := sc.count("claimed")
		switch {
		case sc.count("step") != 1:
			return "", fmt.Errorf("the step is recorded %d times", sc.count("step"))
		case claims == 1 && ran == 1:
			return "one claim", sc.ends("done")
		case a.Killed() || b.Killed() || sc.flaw.worker != nil:
			return "takeover", sc.ends("done")
		}
		return "", fmt.Errorf("%d claims, and the step ran %d times", claims, ran)
	}
}

func TestExploredOneWorkerClaims(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).claiming, "one claim")
	if exploreTorture {
		exploreAll(t, explore.Config{Crashes: 1}, (*scene).claiming, "one claim", "takeover")
	}
}

// A lease only decides who tries. Where it tells nothing, a worker is fenced
// in the middle of its step, and the journal is right all the same.
func TestExploredTakeoverFencesTheLiving(t *testing.T) {
	plot := func(sc *scene) func() (string, error) {
		sc.flaw.worker = func(s store.Store) store.Store { return deaf{s} }
		return sc.claiming()
	}
	exploreAll(t, explore.Config{}, plot, "one claim", "takeover")
}

// upgraded is a run of one step, to whose journal a newer version writes
// something in the middle.
func (sc *scene) upgraded() func() (string, error) {
	sc.open(perdure.NewFlow("work", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "work", func(ctx context.Context) (string, error) { return "done", explore.Point(ctx, "work") })
	}))
	sc.start()
	name := sc.journals()[0]
	at := uint64(0)
	sc.w.Actor("newer", func(ctx context.Context, s store.Store) error {
		for {
			last, head := kit.JournalEnd(sc.t, sc.w.Store(), name)
			e := journal.Entry{Kind: "continued", ID: journal.NewID(), Time: 1}
			_, err := s.Append(ctx, name, last, e.Encode(head))
			if !errors.Is(err, store.ErrConflict) {
				at = last + 1
				return err
			}
		}
	})
	sc.worker("worker")
	return func() (string, error) {
		lines, err := store.ReadAll(context.Background(), sc.w.Store(), name, at)
		if err != nil {
			return "", err
		}
		var kinds []string
		for _, l := range lines {
			e, err := journal.Peek(l.Seq, l.Data)
			if err != nil {
				return "", err
			}
			kinds = append(kinds, string(e.Kind))
		}
		switch end := strings.Join(kinds, " "); end {
		case "", "released":
			return "fenced " + end, nil
		default:
			return "", fmt.Errorf("the worker has written %s behind what it does not know", end)
		}
	}
}

func TestExploredUnknownKindFences(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).upgraded, "fenced ", "fenced released")
}
