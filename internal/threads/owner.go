package threads

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// NewOwner returns who owns what is made, given who is named.
func (r *Tenant) NewOwner(named string) (string, error) {
	switch {
	case r.Owner == nil || named == *r.Owner:
		return named, nil
	case named == "":
		return *r.Owner, nil
	}
	return "", fmt.Errorf("%w: a thread of %q cannot be made for %q", fault.ErrInvalid, *r.Owner, named)
}

// IDForKey returns the id of the thread that an idempotency key stands for. Keys of
// users do not meet.
func (r *Tenant) IDForKey(kind, key string) string {
	texts := []string{kind, r.Name, key}
	if r.Owner != nil {
		texts = []string{kind + ", of a user", r.Name, *r.Owner, key}
	}
	return Base32.EncodeToString(r.All.Hash(texts...)[:15])
}

// Owns reports whether a thread as it was read is one that the runtime reaches.
// One without entries is nobody's yet.
func (r *Tenant) Owns(t *journal.Thread) bool {
	return r.Owner == nil || t.Seq == 0 || t.User == *r.Owner
}

// Reaches reports whether the thread with a name is one that the runtime
// reaches. What was erased is nobody's.
func (r *Tenant) Reaches(ctx context.Context, name string) (bool, error) {
	if r.Owner == nil {
		return true, nil
	}
	// Once it was written from the thread the summary says so in one read: the
	// owner never changes.
	if cell, err := r.All.Store.Get(ctx, JournalKey(name)); err == nil {
		var s Summary
		if json.Unmarshal(cell.Value, &s) == nil && s.Seq > 0 && !s.Rough {
			return s.User == *r.Owner, nil
		}
	}
	o, err := r.All.Read(ctx, name)
	switch {
	case IsGone(err):
		return false, nil
	case o == nil:
		return false, err
	}
	return r.Owns(o.Thread), nil
}
