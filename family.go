package perdure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// Family is a thread with everything that it comes from and that comes from it:
// forks and children, and theirs.
type Family struct {
	Members []Relative `json:"members"`        // each after the one it comes from, in the order of their creation
	More    bool       `json:"more,omitempty"` // there are others
}

// Relative is a member of a family. Its status may lag slightly.
type Relative struct {
	ID      string    `json:"id"`
	From    string    `json:"from,omitempty"` // the member that it comes from; "" for the first
	Kind    string    `json:"kind,omitempty"` // how: fork or child
	At      uint64    `json:"at,omitempty"`   // of a fork: the last sequence that both share
	Flow    string    `json:"flow,omitempty"`
	Title   string    `json:"title,omitempty"`
	Status  Status    `json:"status"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// mostRelatives bounds a family, and mostAbove how far back it goes.
const (
	mostRelatives = 500
	mostAbove     = 50
)

// Family returns a thread's family, from the first thread that it comes from and
// that is in the store. Archived threads are left out, and so are those that the
// runtime may not read.
func (r *Runtime) Family(ctx context.Context, thread string) (*Family, error) {
	o, err := r.tenant.Open(ctx, thread)
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
		next, err := r.tenant.Open(ctx, above)
		if unreadable(err) {
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

// unreadable reports whether a thread cannot be read because it is not there.
func unreadable(err error) bool {
	return errors.Is(err, ErrNoThread) || errors.Is(err, ErrErased) || errors.Is(err, ErrArchived) || errors.Is(err, fault.ErrCorrupt)
}

// pins reports whether a thread comes from another.
func (r *Runtime) pins(ctx context.Context, name, by string) (bool, error) {
	all, err := r.core.threads.Pins(ctx, name)
	return slices.Contains(all, threads.Self(by)), err
}

// gather adds a thread and what comes from it. Member says how it belongs to the
// family.
func (r *Runtime) gather(ctx context.Context, f *Family, name string, member Relative) error {
	s, err := r.core.threads.ReadSummary(ctx, name)
	if err != nil {
		return err
	}
	if owner := r.tenant.Owner; s.ID == "" || owner != nil && s.User != *owner {
		return nil
	}
	if f.More = f.More || len(f.Members) == mostRelatives; f.More {
		return nil
	}
	member.ID, member.Flow, member.Title, member.Status = s.ID, s.Flow, s.Title, Status(s.Status)
	member.Created, member.Updated = clock.Stamp(s.Created), clock.Stamp(s.Changed())
	f.Members = append(f.Members, member)
	pins, err := r.core.threads.Pins(ctx, name)
	if err != nil {
		return err
	}
	for _, by := range pins {
		here, err := r.core.threads.Here(ctx, by)
		if errors.Is(err, ErrArchived) || threads.IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		below := Relative{From: s.ID, Kind: "child"}
		roots, err := r.core.threads.Roots(ctx, here)
		if threads.IsGone(err) {
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
