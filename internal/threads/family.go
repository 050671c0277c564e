package threads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// mostRelatives bounds a family, and mostAbove how far back it goes.
const (
	mostRelatives = 500
	mostAbove     = 50
)

// Family is a thread with all that it comes from and that comes from it: see
// perdure.Family.
type Family struct {
	Members []Relative
	More    bool
}

// Relative is a member of a family.
type Relative struct {
	ID, From, Kind   string
	At               uint64
	Flow, Title      string
	Status           journal.Status
	Created, Updated time.Time
}

// Family returns a thread's family, from the first thread that it comes from and
// that is in the store.
func (r *Tenant) Family(ctx context.Context, thread string) (*Family, error) {
	o, err := r.Open(ctx, thread)
	if err != nil {
		return nil, err
	}
	for range mostAbove {
		above := ""
		if t := o.Thread; t.Parent != nil {
			above = t.Parent.Thread
		} else if t.Fork != nil {
			above = t.Fork.Thread
		}
		if above == "" || above == o.Thread.ID { // an import knows the id of another store
			break
		}
		next, err := r.Open(ctx, above)
		if IsAway(err) || errors.Is(err, fault.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, err
		}
		if related, err := r.pins(ctx, next.Name, o.Name); err != nil || !related {
			if err != nil {
				return nil, err
			}
			break // another thread has the id now
		}
		o = next
	}
	f := &Family{}
	if err := r.gather(ctx, f, o.Name, Relative{}); err != nil {
		return nil, fmt.Errorf("perdure: the family of thread %s: %w", thread, err)
	}
	return f, nil
}

// pins reports whether a thread comes from another.
func (r *Tenant) pins(ctx context.Context, name, by string) (bool, error) {
	all, err := r.All.Pins(ctx, name)
	return slices.Contains(all, Self(by)), err
}

// gather adds a thread and what comes from it. Member says how it belongs to the
// family.
func (r *Tenant) gather(ctx context.Context, f *Family, name string, member Relative) error {
	s, err := r.All.ReadSummary(ctx, name)
	if err != nil {
		return err
	}
	if owner := r.Owner; s.ID == "" || owner != nil && s.User != *owner {
		return nil
	}
	if f.More = f.More || len(f.Members) == mostRelatives; f.More {
		return nil
	}
	member.ID, member.Flow, member.Title, member.Status = s.ID, s.Flow, s.Title, s.Status
	member.Created, member.Updated = clock.Stamp(s.Created), clock.Stamp(s.Changed())
	f.Members = append(f.Members, member)
	pins, err := r.All.Pins(ctx, name)
	if err != nil {
		return err
	}
	for _, by := range pins {
		here, err := r.All.Here(ctx, by)
		if IsAway(err) {
			continue
		}
		if err != nil {
			return err
		}
		below := Relative{From: s.ID, Kind: "child"}
		roots, err := r.All.Roots(ctx, here)
		if IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if len(roots) > 0 {
			below.Kind, below.At = "fork", roots[0].Base
		}
		if err := r.gather(ctx, f, here, below); err != nil {
			return err
		}
	}
	return nil
}
