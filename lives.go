package perdure

import (
	"context"
)

// After a thread was erased another can have its id. That an id was used is all
// that stays of the first, as a keyed hash; it lets events of the second have
// ids of their own, so that a reader of the first does not go on with it.

// Life returns what tells a thread from all others that have or had its id: it
// is another one when the thread was erased and its id is used again. It is for
// those who read a thread in pieces.
func (r *Runtime) Life(ctx context.Context, thread string) (string, error) {
	return r.tenant.Find(ctx, thread)
}

// Tag returns what the ids of a thread's events end with outside: "" for the
// first thread with its id, and for one that uses the id of an erased thread a
// keyed hash of its life. [Event] and [Thread] have it as their Life.
func (r *Runtime) Tag(ctx context.Context, thread string) (string, error) {
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return "", err
	}
	return r.tenant.Tag(ctx, name, thread)
}
