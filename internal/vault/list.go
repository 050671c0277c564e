package vault

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
)

// Listed is an archived thread in a list.
type Listed struct {
	*threads.Archived
	Cursor string // the list continues after it
}

// List yields the tenant's archived threads in the order of their creation, after a
// cursor unless that is "".
func (v *Vault) List(ctx context.Context, after string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		prefix := threads.ArchivedKey(v.tenant.Part) + "."
		if after != "" {
			after = prefix + after
		}
		for cell, err := range v.threads.Store.List(ctx, prefix, after) {
			if err != nil {
				yield(Listed{}, err)
				return
			}
			a, err := threads.DecodeArchived(cell)
			if err == nil && a.State == threads.Archiving && a.Object != "" {
				a, err = v.decided(ctx, a)
			}
			switch {
			case err != nil:
				yield(Listed{}, err)
				return
			case a == nil:
				continue
			case a.State != threads.InArchive && a.State != threads.Restoring, v.tenant.Owner != nil && a.User != *v.tenant.Owner:
				continue
			}
			if !yield(Listed{a, strings.TrimPrefix(cell.Key, prefix)}, nil) {
				return
			}
		}
	}
}

// decided looks whether a thread that was being archived is in the archive: its last
// entry says so. It completes what a process that died has left, and returns what the
// thread's cell says then.
func (v *Vault) decided(ctx context.Context, a *threads.Archived) (*threads.Archived, error) {
	o, err := v.threads.Read(ctx, a.From)
	if err = v.threads.IfArchived(ctx, o, err); !errors.Is(err, fault.ErrArchived) {
		if err != nil && (threads.IsGone(err) || threads.IsDamage(err)) { // it is not in the archive
			err = nil
		}
		return a, err
	}
	now, _, err := v.threads.ReadArchived(ctx, a.From)
	return now, err
}

// Tidy completes what processes that died, or had no archive, have left: erases of
// archived threads.
func (v *Vault) Tidy(ctx context.Context) error {
	if v.place == nil {
		return nil
	}
	prefix := threads.ArchivedKey("")
	var left []string
	for cell, err := range v.threads.Store.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if a, err := threads.DecodeArchived(cell); err == nil && a.State == threads.Erasing && (a.Place == "" || a.Place == v.URL() && v.same(a)) {
			left = append(left, strings.TrimPrefix(cell.Key, prefix))
		}
	}
	for _, self := range left {
		if err := v.life.FinishErasing(ctx, self); err != nil {
			return err
		}
	}
	return nil
}
