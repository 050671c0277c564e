package vault

import (
	"context"
	"iter"
	"strings"

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
			switch {
			case err != nil:
				yield(Listed{}, err)
				return
			case a.State != threads.InArchive && a.State != threads.Restoring, v.tenant.Owner != nil && a.User != *v.tenant.Owner:
				continue
			}
			if !yield(Listed{a, strings.TrimPrefix(cell.Key, prefix)}, nil) {
				return
			}
		}
	}
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
		if a, err := threads.DecodeArchived(cell); err == nil && a.State == threads.Erasing && (a.Place == "" || a.Place == v.URL()) {
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
