package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/upkeep"
)

// No test but those of the sweep itself is to be saved by it: a lost hint must
// be seen.
func init() { upkeep.SetSweepInterval(100 * 365 * 24 * time.Hour) }

// Halfway makes the cells of a thread and pins another by it, as a fork or a
// child does before its first entry. It returns what writes that entry.
func Halfway(ctx context.Context, r *Runtime, id, of string, fork bool) (begin func(context.Context) error, err error) {
	parent, err := r.open(ctx, of)
	if err != nil {
		return nil, err
	}
	mark := ""
	if fork {
		mark = forkMark
	}
	name, err := r.name(ctx, id, r.newName(time.Now(), mark, ""), fork)
	if err != nil {
		return nil, err
	}
	if _, err := r.ensure(ctx, journalOf(name), []byte(`{"id":"`+id+`"}`)); err != nil {
		return nil, err
	}
	if err := r.pin(ctx, parent.name, name); err != nil {
		return nil, err
	}
	from := &journal.Origin{Name: parent.name, Thread: of}
	lines := []line{
		{kind: journal.Created, body: journal.Body{Thread: id, From: from}},
		{kind: journal.Queued, body: journal.Body{ID: id + "-run", Flow: "nobody's", Policy: string(Enqueue), Value: journal.Value{JSON: []byte(`"in"`)}}},
	}
	if fork {
		lines = []line{{kind: journal.Forked, body: journal.Body{Thread: id, From: from, At: parent.thread.Seq}}}
	}
	return func(ctx context.Context) error {
		if _, err := r.blob(ctx, name, []byte(`"late"`)); err != nil {
			return err
		}
		if !fork {
			_, _, err := r.change(ctx, name, func(*journal.Thread) ([]line, []string, error) { return lines, []string{"nobody's"}, nil })
			return err
		}
		past := emptyThread(parent.name)
		if err := r.readMore(ctx, past, parent.thread.Seq); err != nil {
			return r.late(ctx, name, err)
		}
		past.thread.Base = past.thread.Seq
		_, data, err := writeLines(past.thread, lines)
		if err == nil {
			err = r.late(ctx, name, r.append(ctx, name, past.thread, data))
		}
		return err
	}, nil
}

// StartChild starts a child of the first run of a thread, as a Spawn does when
// it is recorded.
func StartChild(ctx context.Context, r *Runtime, id, of string) error {
	parent, err := r.open(ctx, of)
	if err != nil {
		return err
	}
	child := &journal.Child{ID: id, Path: "/child", Flow: "nobody's", Input: journal.Value{JSON: []byte(`"in"`)}}
	_, err = r.startChild(ctx, parent.name, parent.thread, parent.thread.Runs[0], child)
	return err
}

// AlsoCalled lets another id lead to a thread, also one that a new thread could
// not have.
func AlsoCalled(ctx context.Context, r *Runtime, thread, id string) error {
	name, err := r.find(ctx, thread)
	if err == nil {
		_, err = r.ensure(ctx, r.idCell(id), []byte(name))
	}
	return err
}

// WorkOnce is Work without a new beginning when the lease is lost.
func WorkOnce(ctx context.Context, r *Runtime) error { return r.work(ctx) }
