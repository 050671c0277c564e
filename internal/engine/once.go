package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// The decisions that an ask about an unknown outcome offers.
const (
	DecisionDone    = "done"
	DecisionNotDone = "not-done"
	DecisionFail    = "fail"
)

// KindOutcome is the kind of an ask about an unknown outcome.
const KindOutcome = "outcome"

// wanted returns the kind of JSON value that a decision needs, "" if any will
// do.
func wanted(q *journal.Question, decision string) string {
	if q.Kind == KindOutcome && decision != DecisionDone {
		return ""
	}
	return q.Want
}

// intend records that the function is about to start, and makes sure that the
// worker's lease is still valid. It returns false if a cancel or pause came
// first, or if the lease ran out in the meantime: then the function has not
// started, which is recorded unless another worker took over the run.
func (s *step) intend() (bool, error) {
	p := s.frame.pass
	intended := false
	err := p.commit(func() batch {
		if s.frame.refusal() != nil || (p.run.PausedAt != 0 || p.draining) && !s.frame.cleaning {
			return batch{}
		}
		return batch{
			lines: []threads.Line{{Kind: journal.Intent, Path: s.path,
				Body: journal.Body{Input: s.Input, Due: clock.Now().Add(s.Timeout).UnixMicro()}}},
			then: func() { intended = true },
		}
	})
	if err == nil && intended && !p.holder.LeaseValid() {
		return false, s.notDone(p.node(s.path))
	}
	return intended, err
}

// decide finds out what became of a start whose outcome is not recorded. It
// returns true if the step then has its outcome.
func (s *step) decide(ctx context.Context) (bool, error) {
	p := s.frame.pass
	p.mu.Lock()
	n := p.tree.At(s.path)
	answer, open := n.Answer, n.Open != 0
	p.mu.Unlock()
	switch {
	case answer != nil:
		return s.decided(n, answer)
	case open:
		return false, s.await(ctx, n)
	}
	if s.returned == nil {
		// An earlier worker may still be running the function, until its
		// timeout.
		if err := s.sitOut(ctx, max(s.Timeout, n.Limit)); err != nil {
			return false, err
		}
	}
	if err := p.gate(ctx, s.frame); err != nil {
		return false, err
	}
	key, err := p.keyAt(s.path, n.Started)
	if err != nil {
		return false, err
	}
	if s.Reconcile != nil {
		// It is user code, and may kill the worker.
		if err := p.act(); err != nil {
			return false, err
		}
		raw, outcome, err := s.reconciled(ctx, key)
		switch {
		case p.Err() != nil:
			return false, p.Err()
		case err == nil && outcome == OutcomeDone:
			return true, p.record(s.path, journal.Step, &journal.Body{Input: s.Input, Value: journal.Value{JSON: raw}}, nil)
		case err == nil && outcome == OutcomeNotDone && s.returned != nil:
			// It failed without effect, as if it had returned NotDone itself.
			return s.failed(n.Attempts+1, s.returned, s.policy(10), nil)
		case err == nil && outcome == OutcomeNotDone:
			return false, s.notDone(n)
		case err != nil:
			err := p.record(s.path, journal.Problem, &journal.Body{Fail: p.failure(fmt.Errorf("reconcile: %w", err))}, nil)
			if err != nil {
				return false, err
			}
		}
	}
	q := journal.Question{
		Kind:      KindOutcome,
		Prompt:    fmt.Sprintf("Nobody knows whether step %s happened. Did it?", tree.Names(s.path)),
		Decisions: []string{DecisionDone, DecisionNotDone, DecisionFail},
		Guards:    key,
		Want:      exact.KindOf(s.result),
	}
	if s.Asks != nil {
		q.Prompt, q.Who = cmp.Or(s.Asks.Prompt, q.Prompt), s.Asks.Who
	}
	b, err := p.question(q, s.shown, Question{})
	if err != nil {
		return false, err
	}
	return false, p.open(s.frame, threads.Line{Kind: journal.Asked, Path: s.path, Body: b})
}

// sitOut waits until limit has passed since this worker's claim.
func (s *step) sitOut(ctx context.Context, limit time.Duration) error {
	p := s.frame.pass
	wait := limit - time.Since(p.born)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	return p.rest(func() error {
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return p.cutCause(ctx, s.frame)
		case <-p.ctx.Done():
			return p.Err()
		}
	})
}

// await parks until the ask about the outcome is answered.
func (s *step) await(ctx context.Context, n *tree.Node) error {
	p := s.frame.pass
	if err := p.gate(ctx, s.frame); err != nil {
		return err
	}
	return p.park(ctx, &waiter{frame: s.frame, ready: func() bool { return n.Open == 0 }})
}

// decided acts on a person's answer.
func (s *step) decided(n *tree.Node, answer *journal.Answer) (bool, error) {
	p := s.frame.pass
	switch answer.Decision {
	case DecisionDone:
		return true, p.record(s.path, journal.Step, &journal.Body{Input: s.Input, Value: answer.Value}, nil)
	case DecisionNotDone:
		return false, s.notDone(n)
	}
	err := fmt.Errorf("%w of an at-most-once step; someone decided to let it fail", fault.ErrUnknownOutcome)
	if answer.Message != "" {
		err = fmt.Errorf("%w: %s", err, answer.Message)
	}
	return true, p.record(s.path, journal.Step, &journal.Body{Input: s.Input, Fail: fault.Failure(err)}, nil)
}

// notDone records that an earlier start had no effect.
func (s *step) notDone(n *tree.Node) error {
	s.returned = nil
	b := journal.Body{Attempt: n.Attempts, NotDone: true, Fail: fault.Failure(errors.New("an earlier start had no effect"))}
	return s.frame.pass.record(s.path, journal.Attempt, &b, nil)
}

// reconciled calls the step's Reconcile function as a separate leaf, with the
// key under which the step was started.
func (s *step) reconciled(ctx context.Context, key string) (json.RawMessage, Outcome, error) {
	type found struct {
		raw     json.RawMessage
		outcome Outcome
	}
	inner := s.frame.child(s.frame.memo.Enter(s.path))
	inner.once, inner.key = true, key // it may look, but change nothing
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fault.ErrTimeout)
	defer cancel()
	got, err := invoke(inner.with(ctx), func(ctx context.Context) (found, error) {
		raw, outcome, err := s.Reconcile(ctx)
		return found{raw, outcome}, err
	})
	s.frame.pass.mu.Lock()
	inner.done = true
	inner.forgetDeltas()
	s.frame.pass.mu.Unlock()
	return got.raw, got.outcome, err
}
