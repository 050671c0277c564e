package perdure

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// User returns the same runtime, limited to the threads that a user of the
// tenant owns. Those of others are as if they were not there, whether they are
// named by the id of a thread or of an ask; only that an id is taken is seen,
// when a thread is made: ErrExists. What it makes belongs to the user.
func (r *Runtime) User(user string) *Runtime {
	return &Runtime{core: r.core, tenant: r.tenant, part: r.part, owner: &user}
}

// newOwner returns who owns what is made, given who is named.
func (r *Runtime) newOwner(named string) (string, error) {
	switch {
	case r.owner == nil || named == *r.owner:
		return named, nil
	case named == "":
		return *r.owner, nil
	}
	return "", fmt.Errorf("%w: a thread of %q cannot be made for %q", fault.ErrInvalid, *r.owner, named)
}

// byKey returns the id of the thread that an idempotency key stands for. Keys of
// users do not meet.
func (r *Runtime) byKey(kind, key string) string {
	texts := []string{kind, r.tenant, key}
	if r.owner != nil {
		texts = []string{kind + ", of a user", r.tenant, *r.owner, key}
	}
	return base32Lower.EncodeToString(r.hash(texts...)[:15])
}

// owns reports whether a thread as it was read is one that the runtime reaches.
// One without entries is nobody's yet.
func (r *Runtime) owns(t *journal.Thread) bool {
	return r.owner == nil || t.Seq == 0 || t.User == *r.owner
}

// reaches reports whether the thread with a name is one that the runtime
// reaches. What was erased is nobody's.
func (r *Runtime) reaches(ctx context.Context, name string) (bool, error) {
	if r.owner == nil {
		return true, nil
	}
	// Once it was written from the thread the summary says so in one read: the
	// owner never changes.
	if cell, err := r.store.Get(ctx, journalOf(name)); err == nil {
		var s summary
		if json.Unmarshal(cell.Value, &s) == nil && s.Seq > 0 && !s.Rough {
			return s.User == *r.owner, nil
		}
	}
	o, err := r.read(ctx, name)
	switch {
	case gone(err):
		return false, nil
	case o == nil:
		return false, err
	}
	return r.owns(o.thread), nil
}
