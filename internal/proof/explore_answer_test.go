package proof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/explore"
)

func exploredAsk(q perdure.Question) perdure.Flow {
	return perdure.NewFlow("ask", func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "q", q)
	})
}

func replying(ask, value, by string) func(context.Context, *perdure.Runtime) error {
	return func(ctx context.Context, rt *perdure.Runtime) error {
		return rt.Answer(ctx, perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: value, By: by}})
	}
}

// answered judges a run that one person answers with "yes": whatever the
// order, an answer that is in the journal ends the run.
func (sc *scene) answered(person *explore.Actor) (string, error) {
	switch {
	case sc.count("answered") == 1:
		return "answered", sc.ends("yes")
	case person.Killed():
		return "unanswered", sc.is(perdure.Suspended)
	}
	return "", fmt.Errorf("%d answers, the person got: %w", sc.count("answered"), person.Err())
}

// suspending is a run that is executed once more up to the ask it waits for,
// while a person answers that. The worker may suspend it before, after or
// while the answer is announced and written.
func (sc *scene) suspending() func() (string, error) {
	sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
	sc.start()
	ask := sc.work().Asks[0].ID
	sc.again()
	person := sc.outside("person", replying(ask, "yes", ""))
	sc.workers(person)
	return func() (string, error) { return sc.answered(person) }
}

// first is a run from its first claim on: the ask and the suspension are one
// append, and the answer meets what the worker does behind it.
func (sc *scene) first() func() (string, error) {
	sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
	sc.start()
	person := sc.outside("person", sc.replyToNews)
	sc.workers()
	return func() (string, error) { return sc.answered(person) }
}

// replyToNews answers the ask as soon as it is committed. Where the news died
// with its worker, it is found a little later.
func (sc *scene) replyToNews(ctx context.Context, rt *perdure.Runtime) error {
	for {
		select {
		case ask := <-sc.news:
			return replying(ask, "yes", "")(ctx, rt)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(51 * time.Millisecond):
			run, err := sc.rt.GetRun(ctx, "t", "")
			if err == nil && len(run.Asks) > 0 {
				return replying(run.Asks[0].ID, "yes", "")(ctx, rt)
			}
		}
	}
}

// waking is a run that waits for an answer, and a worker that has nothing to
// do when it comes.
func (sc *scene) waking() func() (string, error) {
	sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
	sc.start()
	person := sc.outside("person", replying(sc.work().Asks[0].ID, "yes", ""))
	sc.workers(person)
	return func() (string, error) { return sc.answered(person) }
}

// asking is a run from its first claim on, whose ask is open while another
// branch is at work: the answer meets the step, the suspension, or what comes
// behind it.
func (sc *scene) asking() func() (string, error) {
	sc.open(perdure.NewFlow("ask", func(ctx context.Context, _ string) (string, error) {
		g := perdure.NewGroup(ctx)
		var said string
		g.Go("person", func(ctx context.Context) (err error) {
			said, err = perdure.Ask[string](ctx, "q", perdure.Question{Prompt: "?"})
			return err
		})
		g.Go("clerk", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "work", func(ctx context.Context) (int, error) {
				return 1, explore.Point(ctx, "work")
			})
			return err
		})
		return said, g.Wait()
	}))
	sc.start()
	person := sc.outside("person", sc.replyToNews)
	sc.workers()
	return func() (string, error) { return sc.answered(person) }
}

// parked is like asking, but the other branch takes its time: the branch that
// asks is woken in the pass, which follows the journal meanwhile.
func (sc *scene) parked() func() (string, error) {
	sc.open(perdure.NewFlow("ask", func(ctx context.Context, _ string) (string, error) {
		g := perdure.NewGroup(ctx)
		var said string
		g.Go("person", func(ctx context.Context) (err error) {
			said, err = perdure.Ask[string](ctx, "q", perdure.Question{Prompt: "?"})
			return err
		})
		g.Go("clerk", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "work", func(context.Context) (int, error) {
				time.Sleep(250 * time.Millisecond)
				return 1, nil
			})
			return err
		})
		return said, g.Wait()
	}))
	sc.start()
	person := sc.outside("person", sc.replyToNews)
	sc.workers()
	return func() (string, error) {
		end, err := sc.answered(person)
		if sc.count("suspended") == 0 {
			end += " in one pass"
		}
		return end, err
	}
}

func TestExploredAnswerIsNeverMissed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		plot    plot
		cfg     explore.Config
		long    bool
		endings []string
	}{
		{"first", (*scene).first, explore.Config{}, false, []string{"answered"}},
		{"first, time passes", (*scene).first, explore.Config{Delays: 1}, true, []string{"answered"}},
		{"first, a crash", (*scene).first, explore.Config{Crashes: 1}, false, []string{"answered", "unanswered"}},
		{"first, two crashes", (*scene).first, explore.Config{Crashes: 2}, true, []string{"answered", "unanswered"}},
		{"waking, time passes", (*scene).waking, explore.Config{Delays: 1}, false, []string{"answered"}},
		{"waking, a crash", (*scene).waking, explore.Config{Crashes: 1}, false, []string{"answered", "unanswered"}},
		{"waking, faults", (*scene).waking, explore.Config{Conflicts: 1, Unknowns: 1}, false, []string{"answered"}},
		{"suspending", (*scene).suspending, explore.Config{}, false, []string{"answered"}},
		{"suspending, a crash", (*scene).suspending, explore.Config{Crashes: 1}, true, []string{"answered", "unanswered"}},
		{"suspending, a spurious conflict", (*scene).suspending, explore.Config{Conflicts: 1}, true, []string{"answered"}},
		{"suspending, an unknown outcome", (*scene).suspending, explore.Config{Unknowns: 1}, true, []string{"answered"}},
		{"parked, time passes", (*scene).parked, explore.Config{Delays: 1}, false, []string{"answered in one pass"}},
		{"parked, time passes twice", (*scene).parked, explore.Config{Delays: 2}, true, []string{"answered in one pass"}},
		{"asking", (*scene).asking, explore.Config{}, true, []string{"answered"}},
		{"asking, a crash", (*scene).asking, explore.Config{Crashes: 1}, true, []string{"answered", "unanswered"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.long && !exploreTorture {
				t.Skip("set PERDURE_TORTURE=1 to run it")
			}
			exploreAll(t, tc.cfg, tc.plot, tc.endings...)
		})
	}
}

// twoAnswers is an ask that two people answer.
func twoAnswers(a, b string) plot {
	return func(sc *scene) func() (string, error) {
		sc.open(exploredAsk(perdure.Question{Prompt: "?"}))
		sc.start()
		ask := sc.work().Asks[0].ID
		ann := sc.outside("ann", replying(ask, a, ""))
		bob := sc.outside("bob", replying(ask, b, ""))
		return func() (string, error) {
			if n := sc.count("answered"); n != 1 {
				return "", fmt.Errorf("%d answers are in the journal", n)
			}
			sc.work()
			switch errA, errB := ann.Err(), bob.Err(); {
			case a == b && errA == nil && errB == nil:
				return "both", sc.ends(a)
			case errA == nil && errors.Is(errB, perdure.ErrAnswered):
				return "ann", sc.ends(a)
			case errB == nil && errors.Is(errA, perdure.ErrAnswered):
				return "bob", sc.ends(b)
			default:
				return "", fmt.Errorf("ann got %v, bob got %v", errA, errB)
			}
		}
	}
}

func TestExploredFirstOfTwoAnswersWins(t *testing.T) {
	exploreAll(t, explore.Config{}, twoAnswers("yes", "no"), "ann", "bob")
	exploreAll(t, explore.Config{Conflicts: 1, Unknowns: 1}, twoAnswers("yes", "no"), "ann", "bob")
	exploreAll(t, explore.Config{}, twoAnswers("yes", "yes"), "both")
}

// expiring is an ask whose time is just not over when a worker and a person see
// it, and may be over at any moment.
func (sc *scene) expiring() func() (string, error) {
	return sc.expires(time.Minute - 57*time.Millisecond)
}

// expired is an ask whose time is over when they see it: an answer changes
// nothing, whether or not the expiry is recorded.
func (sc *scene) expired() func() (string, error) { return sc.expires(time.Minute) }

// expires is an ask for a minute, which a worker and a person see at a time.
func (sc *scene) expires(seen time.Duration) func() (string, error) {
	sc.open(exploredAsk(perdure.Question{Prompt: "?", Expires: time.Minute, Default: &perdure.Answer{Value: "default"}}))
	sc.start()
	ask := sc.work().Asks[0].ID
	time.Sleep(seen)
	person := sc.outside("person", replying(ask, "yes", ""))
	sc.workers(person)
	return func() (string, error) {
		answered, expired := sc.count("answered"), sc.count("expired")
		switch err := person.Err(); {
		case answered+expired != 1:
			return "", fmt.Errorf("%d answers and %d expiries, the person got: %w", answered, expired, err)
		case answered == 1 && (err == nil || person.Killed()):
			return "answered", sc.ends("yes")
		case expired == 1 && (errors.Is(err, perdure.ErrAskOver) || person.Killed()):
			return "expired", sc.ends("default")
		default:
			return "", fmt.Errorf("the person got %w", err)
		}
	}
}

// closing is an ask in a group that fails fast, while another branch fails: the
// answer is recorded before the ask is closed, or the person hears that it is.
func (sc *scene) closing() func() (string, error) {
	sc.open(perdure.NewFlow("ask", func(ctx context.Context, _ string) (string, error) {
		g := perdure.NewGroup(ctx, perdure.FailFast())
		g.Go("person", func(ctx context.Context) error {
			_, err := perdure.Ask[string](ctx, "q", perdure.Question{Prompt: "?"})
			return err
		})
		g.Go("clerk", func(ctx context.Context) error {
			if _, err := perdure.Step(ctx, "work", func(ctx context.Context) (int, error) {
				return 1, explore.Point(ctx, "work")
			}); err != nil {
				return err
			}
			return errors.New("declined")
		})
		return "", g.Wait()
	}))
	sc.start()
	person := sc.outside("person", sc.replyToNews)
	sc.workers()
	return func() (string, error) {
		answered, err := sc.count("answered"), person.Err()
		switch {
		case sc.count("closed") != 1:
			return "", fmt.Errorf("closed %d times", sc.count("closed"))
		case answered == 1 && (err == nil || person.Killed()):
			return "answered", sc.is(perdure.Failed)
		case answered == 0 && person.Killed():
			return "unanswered", sc.is(perdure.Failed)
		case answered == 0 && errors.Is(err, perdure.ErrAskOver):
			return "closed", sc.is(perdure.Failed)
		}
		return "", fmt.Errorf("%d answers, the person got: %w", answered, err)
	}
}

func TestExploredAnswerOrFailureOfAnotherBranchWins(t *testing.T) {
	exploreAll(t, explore.Config{}, (*scene).closing, "answered", "closed")
	if exploreTorture {
		exploreAll(t, explore.Config{Unknowns: 1}, (*scene).closing, "answered", "closed")
		exploreAll(t, explore.Config{Crashes: 1}, (*scene).closing, "answered", "closed", "unanswered")
	}
}

func TestExploredAnswerOrExpiryWins(t *testing.T) {
	exploreAll(t, explore.Config{Delays: 1}, (*scene).expiring, "answered", "expired")
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).expiring, "answered", "expired")
	exploreAll(t, explore.Config{Crashes: 1}, (*scene).expired, "expired")
}
