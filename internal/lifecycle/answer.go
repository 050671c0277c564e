package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// AskAnswer says who answers an ask. Groups are the groups that By belongs to.
type AskAnswer struct {
	Ask    string
	By     string
	Groups []string
	IfSeq  uint64
	Attach []string
}

// Answer answers asks of one thread, all or none. Keep checks the answer at an
// index against the question, and returns it as it is recorded.
func (r *Control) Answer(ctx context.Context, answers []AskAnswer, keep func(ctx context.Context, name string, i int, q *journal.Question) (journal.Answer, error)) error {
	if len(answers) == 0 {
		return fmt.Errorf("%w: no answers", fault.ErrInvalid)
	}
	if err := r.threads.CheckMoved(ctx); err != nil {
		return err
	}
	name := ""
	for _, a := range answers {
		thread, err := r.tenant.AskThread(ctx, a.Ask)
		if err != nil {
			return err
		}
		if name != "" && name != thread {
			return fmt.Errorf("%w: the asks belong to different threads; answer them one by one", fault.ErrInvalid)
		}
		name = thread
	}
	// Values are encoded, checked and stored once, before anything is appended.
	o, err := r.threads.ReadForest(ctx, name)
	if errors.Is(err, fault.ErrErased) {
		if name, err = r.threads.HereIfMoved(ctx, name, err); err == nil {
			o, err = r.threads.ReadForest(ctx, name)
		}
	}
	if err != nil {
		return err
	}
	kept, files := make([]journal.Answer, len(answers)), make([]attached, len(answers))
	for i, a := range answers {
		ask, err := threads.FindAsk(o.Thread, a.Ask)
		if err != nil {
			return err
		}
		if !threads.Answerable(ask) && (ask.Answer == nil || ask.Expired) {
			return fmt.Errorf("%w: ask %s", fault.ErrAskOver, a.Ask)
		}
		if !journal.May(ask.Question.Who, a.By, a.Groups) {
			return fmt.Errorf("%w: ask %s: %q may not answer it", fault.ErrForbidden, a.Ask, a.By)
		}
		if kept[i], err = keep(ctx, name, i, &ask.Question); err != nil {
			return fmt.Errorf("ask %s: %w", a.Ask, err)
		}
		if files[i], err = r.attach(ctx, name, a.Attach); err != nil {
			return fmt.Errorf("ask %s: %w", a.Ask, err)
		}
	}
	_, _, err = r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		return answerLines(t, answers, kept, files)
	})
	return err
}

// answerLines returns the lines that record answers.
func answerLines(t *journal.Thread, answers []AskAnswer, kept []journal.Answer, files []attached) ([]threads.Line, []string, error) {
	var lines []threads.Line
	var flows []string
	seen := map[string]bool{}
	for i, a := range answers {
		ask, err := threads.FindAsk(t, a.Ask)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case seen[ask.ID]:
			return nil, nil, fmt.Errorf("%w: two answers to ask %s", fault.ErrInvalid, a.Ask)
		case ask.Answer != nil && !ask.Expired && sameAnswer(*ask.Answer, kept[i]):
			continue
		case ask.Answer != nil && !ask.Expired:
			who := ""
			if by := ask.Answer.By; by != "" {
				who = fmt.Sprintf(" by %q", by)
			}
			return nil, nil, fmt.Errorf("%w: ask %s was answered%s at %s", fault.ErrAnswered, a.Ask, who, clock.Stamp(ask.AnswerAt).Format(time.RFC3339))
		case !threads.Answerable(ask):
			return nil, nil, fmt.Errorf("%w: ask %s", fault.ErrAskOver, a.Ask)
		case files[i].missing != nil:
			return nil, nil, files[i].missing
		}
		seen[ask.ID] = true
		lines = append(lines, threads.Line{Kind: journal.Answered, Run: ask.Run.N, Path: ask.Path,
			Body: journal.Body{Of: ask.ID, Answer: &kept[i], Blobs: files[i].blobs}})
		flows = append(flows, ask.Run.Flow)
	}
	if len(lines) == 0 {
		return nil, nil, threads.ErrNothing
	}
	for _, a := range answers {
		if err := fault.CheckSeq(t, t.ID, a.IfSeq); err != nil {
			return nil, nil, err
		}
	}
	return lines, flows, nil
}

func sameAnswer(a, b journal.Answer) bool {
	return a.Decision == b.Decision && a.Message == b.Message && a.By == b.By && sameValue(a.Value, b.Value)
}

// Progress adds a progress report to an open ask.
func (r *Control) Progress(ctx context.Context, ask string, raw json.RawMessage, n Note) error {
	if err := r.threads.CheckMoved(ctx); err != nil {
		return err
	}
	// A large value is stored before it is recorded, so make sure that the ask
	// exists.
	o, _, err := r.tenant.ReadAsk(ctx, ask)
	if err != nil {
		return err
	}
	value, err := r.threads.Value(ctx, o.Name, raw)
	if err != nil {
		return err
	}
	_, _, err = r.threads.Change(ctx, o.Name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		a, err := threads.FindAsk(t, ask)
		if err != nil {
			return nil, nil, err
		}
		if !threads.Answerable(a) {
			return nil, nil, fmt.Errorf("%w: ask %s", fault.ErrAskOver, ask)
		}
		if err := fault.CheckSeq(t, t.ID, n.IfSeq); err != nil {
			return nil, nil, err
		}
		return []threads.Line{{Kind: journal.Progress, Run: a.Run.N, Path: a.Path, Body: journal.Body{Of: a.ID, Value: value, By: n.By, Reason: n.Reason}}}, nil, nil
	})
	return err
}

// Signal sends a named signal to a thread. Signals with the same key have one
// effect; one with the key of another signal is refused.
func (r *Control) Signal(ctx context.Context, thread, name, key string, raw json.RawMessage, attach []string, n Note) error {
	in, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return err
	}
	value, err := r.threads.Value(ctx, in, raw)
	if err != nil {
		return err
	}
	files, err := r.attach(ctx, in, attach)
	if err != nil {
		return err
	}
	var heard uint64
	o, _, err := r.tenant.ChangeNamed(ctx, in, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if key != "" && t.Heard(key) {
			heard = t.HeardAt(key)
			return nil, nil, threads.ErrNothing
		}
		if err := fault.CheckSeq(t, thread, n.IfSeq); err != nil {
			return nil, nil, err
		}
		if files.missing != nil {
			return nil, nil, files.missing
		}
		l := threads.Line{Kind: journal.Signal, Body: journal.Body{Name: name, Key: key, By: n.By, Value: value, Blobs: files.blobs}}
		if run, path := t.Receiver(name); run != nil {
			l.Run, l.Path = run.N, path
			return []threads.Line{l}, []string{run.Flow}, nil
		}
		return []threads.Line{l}, nil, nil
	})
	if err != nil || heard == 0 {
		return err
	}
	old, err := r.threads.BodyAt(ctx, o.Name, heard)
	if err != nil {
		return err
	}
	if old.Name != name || !sameValue(old.Value, value) || !files.same(len(attach), old.Blobs) {
		return fmt.Errorf("%w: key %q sent another signal to thread %s: see entry %d", fault.ErrKeyReused, key, thread, heard)
	}
	return nil
}

// sameValue reports whether two values have the same JSON, apart from white space.
func sameValue(a, b journal.Value) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
