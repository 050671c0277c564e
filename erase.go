package perdure

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
)

// EraseOptions of an erase.
type EraseOptions struct {
	Note
	Dependents bool // forks and children are erased too
}

// Erase removes a thread and all that was kept of it, whatever it is at. What is
// left is a tombstone under a random name, without anything that was given by
// anyone. Its id can be used again, for a new thread. While other threads depend
// on it, it is refused with a [PinnedError] that names them.
//
// After an error call it again: it goes on where it was cut off. ErrNoThread
// says that there is nothing left to erase.
//
// With an IfSeq the thread itself is erased at that sequence or not at all. What
// depends on it goes before: of those some may be gone when it turns out that
// the thread has moved on. One that is cut off keeps the thread from being
// forked until it is called again, or the thread moves on.
func (r *Runtime) Erase(ctx context.Context, thread string, o EraseOptions) error {
	if err := errors.Join(fault.CheckText("the reason", o.Reason, 16<<10), fault.CheckText("who asks", o.By, 500)); err != nil {
		return err
	}
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return err
	}
	return r.life.Erase(ctx, name, thread, lifecycle.Note(o.Note), o.Dependents)
}
