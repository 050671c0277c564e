package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A thread that is being made has cells before its first entry. Whoever comes
// upon what was left half made completes it, or gives it up.

// name returns the name of a thread id, which is fresh if the id leads nowhere.
// A name of the other kind under which nothing was ever written is given up,
// and its late writer finds it dropped. A fork does not take the id of a thread
// that is there: ErrExists.
func (r *Runtime) name(ctx context.Context, id, fresh string, fork bool) (string, error) {
	for range 10 {
		held, err := r.ensure(ctx, r.idCell(id), []byte(fresh))
		if err != nil || string(held) == fresh || isFork(string(held)) == fork {
			return string(held), err
		}
		switch begun, err := r.begun(ctx, journalOf(string(held))); {
		case err != nil:
			return "", err
		case begun && fork:
			return "", fmt.Errorf("%w: %q", ErrExists, id)
		case begun:
			return string(held), nil
		}
		if err := r.abandon(ctx, id, string(held)); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %q is made and given up again and again", ErrBusy, id)
}

// pinOrAbandon pins a thread by one that is being made. Where the other turns
// out to be erased it gives up what was made: that names the other and its user,
// and nobody comes back for it.
func (r *Runtime) pinOrAbandon(ctx context.Context, of, id, name string) error {
	err := r.pin(ctx, of, name)
	if errors.Is(err, ErrErased) {
		err = errors.Join(err, r.abandon(ctx, id, name))
	}
	return err
}

// abandon gives up a name under which nothing was written. It can be repeated.
func (r *Runtime) abandon(ctx context.Context, id, name string) error {
	if err := r.store.Drop(ctx, journalOf(name)); err != nil {
		return err
	}
	if cell, err := r.store.Get(ctx, journalOf(name)); err == nil {
		var s summary
		if json.Unmarshal(cell.Value, &s) == nil && s.From != "" {
			if err := r.unpin(ctx, s.From, name); err != nil {
				return err
			}
		}
	}
	if err := r.remove(ctx, journalOf(name), ""); err != nil {
		return err
	}
	return r.remove(ctx, r.idCell(id), name)
}
