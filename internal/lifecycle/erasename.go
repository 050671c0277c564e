package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// EraseNamed erases the thread with a name and all that depend on it, wherever they
// are: it is for those who do not know the thread's id. It can be repeated at any
// point. The gate, or the cell that says where an archived thread is, goes last.
func (r *Control) EraseNamed(ctx context.Context, name string, n Note) error {
	for range mostTries {
		e := eraser{life: r, note: n, all: true, byName: true}
		a, _, err := r.threads.ReadArchived(ctx, name)
		if err != nil {
			return err
		}
		if a != nil && a.Live() == "" {
			err = e.archivedThread(ctx, threads.Self(name))
		} else {
			if a != nil {
				name = a.Live()
			}
			err = e.unnamed(ctx, name)
		}
		if err == nil && !e.archived {
			return nil
		}
		if err != nil && !errors.Is(err, errReturned) {
			return err
		}
	}
	return fmt.Errorf("%w: it keeps being archived and restored", fault.ErrBusy)
}

// unnamed erases a thread in the store whose id it has to find out.
func (e *eraser) unnamed(ctx context.Context, name string) error {
	o, err := e.life.threads.Read(ctx, name)
	if err != nil && !threads.IsGone(err) && !errors.Is(err, fault.ErrCorrupt) {
		return err
	}
	id := ""
	if o != nil {
		id = o.Thread.ID
	}
	if id == "" { // it has not begun, or cannot be read
		s, err := e.life.threads.ReadSummary(ctx, name)
		if err != nil && !threads.IsDamage(err) {
			return err
		}
		id = s.ID
	}
	return e.named(ctx, name, id)
}

// testify writes down a thread whose last entry says that it is erased, if everything
// of its user is being erased. It comes before anything of the thread goes, whoever
// erases it.
func (e *eraser) testify(ctx context.Context, o *threads.Opened) error {
	t, head := o.Thread, ""
	if e.archived || t.User == "" || t.Seq <= t.Base+1 { // it never began
		return nil
	}
	if t.Erased { // else it is damaged
		_, last, err := e.life.threads.EntryAt(ctx, o.Name, t.Seq-1)
		switch {
		case err == nil:
			head = last.String()
		case !errors.Is(err, fault.ErrCorrupt) && !errors.Is(err, fault.ErrErased):
			return err
		}
	}
	return e.life.threads.Tenant(t.Tenant).NoteErased(ctx, t.User, threads.NotedThread, threads.Self(o.Name), head)
}
