package threads

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// AskID returns the public id of an ask of a thread.
func AskID(name, id string) string {
	_, incarnation, _ := strings.Cut(Self(name), ".")
	return incarnation + "." + id
}

// AskThread returns the name of the thread that an ask belongs to.
func (r *Tenant) AskThread(ctx context.Context, id string) (string, error) {
	incarnation, _, ok := strings.Cut(id, ".")
	if !ok || incarnation == "" || len(id) > 100 {
		return "", fmt.Errorf("%w: %.120q", fault.ErrNoAsk, id)
	}
	name := r.Part + "." + incarnation
	reached, err := r.Reaches(ctx, name)
	if err == nil && !reached { // it may have been restored
		if here, hereErr := r.All.Here(ctx, name); hereErr == nil && here != name {
			name = here
			reached, err = r.Reaches(ctx, name)
		}
	}
	if err == nil && !reached {
		err = fmt.Errorf("%w: %.120q", fault.ErrNoAsk, id)
	}
	return name, err
}

// FindAsk returns the ask of a thread that has the given public id.
func FindAsk(t *journal.Thread, id string) (*journal.Ask, error) {
	_, own, _ := strings.Cut(id, ".")
	a := t.Ask(own)
	if a == nil {
		return nil, fmt.Errorf("%w: %.120q", fault.ErrNoAsk, id)
	}
	return a, nil
}

// ReadAsk reads the ask with the given public id, and its thread.
func (r *Tenant) ReadAsk(ctx context.Context, id string) (*Opened, *journal.Ask, error) {
	name, err := r.AskThread(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	o, err := r.All.Read(ctx, name)
	if errors.Is(err, fault.ErrErased) {
		if name, err = r.All.HereIfMoved(ctx, name, err); err == nil {
			o, err = r.All.Read(ctx, name)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	a, err := FindAsk(o.Thread, id)
	return o, a, err
}

// Answerable reports whether an ask can be answered: it is open and its deadline
// has not passed, even if nobody has recorded that yet.
func Answerable(a *journal.Ask) bool { return a.Open() && (a.Due == 0 || clock.Micros() < a.Due) }
