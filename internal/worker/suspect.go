package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// A run whose claim is followed by nothing has killed its worker, or was there
// when another run did. After some such deaths in a row it is a suspect and
// runs alone, so that no innocent run dies with it; after more it is
// quarantined.
const (
	suspectAfter    = 2
	quarantineAfter = 5

	// patience is how long a suspect waits for a worker to be idle before that
	// worker begins nothing else for as long. If the worker is not idle by
	// then, others may begin again, and so on, each time for twice as long, so
	// that nobody waits forever.
	patience = 5 * time.Second
	// askAfter is how often a worker checks whether a suspect is still waiting.
	askAfter = time.Second
)

// verdict says what to do with a run that is due.
type verdict int

const (
	runs      verdict = iota // it runs beside others
	runsAlone                // nothing else begins in this worker until it has made progress
	waits                    // it waits until the worker is idle
	changed                  // something changed: look again what is due
)

// suspect judges a run that is about to be claimed and may be poison. It is
// quarantined if it has killed too many workers.
func (w *Worker) suspect(o *threads.Opened, run *journal.Run, h due.Hint) (verdict, error) {
	switch lost := o.Thread.LostBefore(run, w.id); {
	case lost < suspectAfter:
		return runs, nil
	case lost >= quarantineAfter:
		return changed, w.quarantine(o, run)
	}
	w.mu.Lock()
	if w.active == 1 && (w.solo == "" || w.solo == h.Thread) {
		w.solo = h.Thread
		delete(w.suspects, keyOf(h))
		w.mu.Unlock()
		return runsAlone, nil
	}
	s := w.suspects[keyOf(h)]
	if s.seen = time.Now(); s.since.IsZero() {
		s.since = s.seen
	}
	s.confirmed = true
	w.suspects[keyOf(h)] = s
	w.mu.Unlock()
	w.later(h, askAfter)
	return waits, nil
}

// waiting says since when a suspect has been waiting for the worker to be idle,
// when it was last looked at, and whether it was still a suspect then.
type waiting struct {
	since, seen time.Time
	confirmed   bool
}

// reserved reports whether only a suspect may begin now. The caller holds mu.
func (w *Worker) reserved() bool {
	for _, s := range w.suspects {
		waited := time.Since(s.since)
		for turn := patience; waited >= turn; turn *= 2 {
			if waited -= turn; waited < turn {
				return true
			}
			waited -= turn
		}
	}
	return false
}

func (w *Worker) closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reserved()
}

// recall takes the suspect that has waited longest if the worker is idle, and
// otherwise checks whether those that were not looked at for a while are still
// waiting. It returns when to do so again.
func (w *Worker) recall(ctx context.Context) (time.Duration, error) {
	w.mu.Lock()
	if len(w.suspects) == 0 {
		w.mu.Unlock()
		return due.Near, nil
	}
	idle := w.active == 0
	var list []hintKey
	for hint, s := range w.suspects {
		if !w.busy[hint.thread] && (idle || time.Since(s.seen) >= askAfter) {
			list = append(list, hint)
		}
	}
	slices.SortFunc(list, func(a, b hintKey) int {
		return cmp.Or(w.suspects[a].since.Compare(w.suspects[b].since), cmp.Compare(a.thread, b.thread))
	})
	w.mu.Unlock()
	for _, hint := range list {
		if w.full() {
			break
		}
		h, there, err := due.Get(ctx, w.threads.Store, hint.flow, hint.thread)
		if err != nil {
			return 0, err
		}
		if there && h.Due <= clock.Micros() {
			w.take(h)
			continue
		}
		w.mu.Lock()
		delete(w.suspects, hint) // another worker dealt with it
		w.mu.Unlock()
	}
	return askAfter, nil
}

// NotSuspect lets the worker take other threads again.
func (w *Worker) NotSuspect(thread string) {
	w.mu.Lock()
	alone := w.solo == thread
	if alone {
		w.solo = ""
	}
	w.mu.Unlock()
	if alone {
		w.poke()
	}
}

// postMortem is what only the worker that quarantines a run knows. The rest is in
// the journal: see perdure.PostMortem.
type postMortem struct {
	Deaths int `json:"deaths"`
}

// quarantine stops a run until a person retries or cancels it.
func (w *Worker) quarantine(o *threads.Opened, run *journal.Run) error {
	m := postMortem{Deaths: o.Thread.LostBefore(run, w.id)}
	fail := &journal.Failure{Codes: []string{"poison"}, Msg: fmt.Sprintf("%d workers in a row were gone while they ran it, and it recorded nothing meanwhile", m.Deaths)}
	if n := len(run.Errors); n > 0 {
		fail.Stack = run.Errors[n-1].Fail.Stack
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	seq, epoch := o.Thread.Seq, o.Thread.Epoch
	fresh, _, err := w.threads.Change(w.io, o.Name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Epoch != epoch || t.Seq < seq {
			return nil, nil, threads.ErrNothing // another worker has claimed it
		}
		found := t.Run(run.N)
		if found == nil || t.LostBefore(found, w.id) < quarantineAfter {
			return nil, nil, threads.ErrNothing
		}
		return []threads.Line{{Kind: journal.Quarantined, Run: run.N, Body: journal.Body{Fail: fail, Value: journal.Value{JSON: raw}}}}, threads.OtherFlows(t, found), nil
	})
	if err == nil {
		*o = *fresh
		w.threads.Log.Error("a run was quarantined", "thread", o.Thread.ID, "run", run.ID, "deaths", m.Deaths)
	}
	return err
}
