package bulk

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Forget removes the jobs of a tenant that are limited to the threads of one of the
// users that of selects, and those that have ended and were started by one. Whoever
// carries out such a job stops. In the other jobs, it removes reports on threads that do
// not exist any more. It first calls each with the id of each job that it removes.
func Forget(ctx context.Context, t *threads.Tenant, of func(user string) bool, each func(id string) error) error {
	all := *t
	all.Owner = nil
	jobs, err := List(ctx, &all)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if !j.isOf(of) {
			err = forgetReports(ctx, &all, j)
		} else if err = each(j.ID); err == nil {
			err = t.All.Remove(ctx, Key(t, j.ID), "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Count returns how many jobs Forget would remove.
func Count(ctx context.Context, t *threads.Tenant, of func(user string) bool) (n int, err error) {
	jobs, err := List(ctx, t)
	for _, j := range jobs {
		if j.isOf(of) {
			n++
		}
	}
	return n, err
}

func (j *Job) isOf(of func(user string) bool) bool {
	var what struct {
		Filter struct {
			User string `json:"user"`
		} `json:"filter"`
	}
	_ = json.Unmarshal(j.What, &what) // of a newer version: the rest tells
	return j.Owner != nil && of(*j.Owner) || of(what.Filter.User) || j.State == Done && of(j.By)
}

// forgetReports removes what a job says about threads that do not exist any more.
func forgetReports(ctx context.Context, t *threads.Tenant, j *Job) error {
	gone := map[string]bool{}
	for _, r := range j.Errors {
		if r.Thread == "" {
			continue
		}
		if _, err := t.Find(ctx, r.Thread); errors.Is(err, fault.ErrNoThread) {
			gone[r.Thread] = true
		} else if err != nil && !errors.Is(err, fault.ErrArchived) && !errors.Is(err, fault.ErrErased) && !threads.IsDamage(err) {
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := store.Update(ctx, t.All.Store, Key(t, j.ID), func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return nil, threads.ErrNothing
		}
		now, err := parse(old.Value)
		if err != nil {
			return nil, err
		}
		for i, r := range now.Errors {
			if gone[r.Thread] {
				now.Errors[i] = Report{Error: "the thread was erased since"}
			}
		}
		return json.Marshal(now)
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}
