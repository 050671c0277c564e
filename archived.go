package perdure

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
)

// ArchivedThread is a thread in the archive, as it was when it was archived.
type ArchivedThread struct {
	ID       string            `json:"id"`
	User     string            `json:"user,omitempty"`
	Title    string            `json:"title,omitempty"`
	Flow     string            `json:"flow,omitempty"`
	Status   Status            `json:"status,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
	Archived time.Time         `json:"archived"`
	Seq      uint64            `json:"seq"`   // its last sequence
	Size     int64             `json:"size"`  // bytes of the object
	Where    string            `json:"where"` // the URL of the place, and the name of the object in it
	Cursor   string            `json:"cursor,omitempty"`
}

func archivedThread(a *threads.Archived) *ArchivedThread {
	return &ArchivedThread{ID: a.ID, User: a.User, Title: a.Title, Flow: a.Flow, Status: a.Status, Metadata: a.Meta,
		Created: clock.Stamp(a.Created), Updated: clock.Stamp(a.Updated), Archived: clock.Stamp(a.At), Seq: a.Seq, Size: a.Size, Where: a.Place + "/" + a.Object}
}

// Archive moves a thread from the store to [Options.Archive], where it takes one
// compressed and signed object. The object is read back and checked before anything is
// removed. From then on every request for the thread is an [ArchivedError], until
// Restore; its id cannot be used for another thread.
//
// All runs of the thread must have ended: otherwise it is ErrBusy. If it is a child,
// the run that spawned it must have ended too. Forks of it, and children that still
// run, keep it in the store: a [PinnedError] names them. Children that have ended stay
// where they are. A fork is archived with the past that it shares.
//
// Archive can be repeated after any error, and at the same time by several processes.
// For a thread in the archive it changes nothing. Interrupted, it can leave a thread in
// the store that cannot be forked until Archive is called again, or the thread moves on.
func (r *Runtime) Archive(ctx context.Context, thread string, n Note) (*ArchivedThread, error) {
	a, err := r.vault().Archive(ctx, thread, lifecycle.Note(n))
	if err != nil {
		return nil, err
	}
	return archivedThread(a), nil
}

// RestoreOptions configures a restore.
type RestoreOptions struct {
	Remove bool // delete the object afterwards; otherwise it stays until the thread is archived again, or erased
}

// Restore brings a thread back from the archive as it was. Unlike an import it is the
// same thread: its entries are the same bytes, decisions that people made count, the
// keys of its steps and the ids of its events and asks are those from before. So a
// failed run can be retried as if the thread had never been away, and readers of its
// events go on where they were.
//
// Everything is checked before the thread can be seen: an object that is not, to the
// last byte, the one that was archived is ErrCorrupt. An object that has to be thawed
// first is archive.ErrThawing, and the error says how. For a thread that was restored
// it changes nothing; for one that never was archived it is ErrNothingToDo. Restore can
// be repeated after any error, and at the same time by several processes.
func (r *Runtime) Restore(ctx context.Context, thread string, o RestoreOptions) error {
	_, err := r.vault().Restore(ctx, thread, o.Remove)
	return err
}

// ArchivedOptions selects archived threads.
type ArchivedOptions struct {
	User   string
	From   time.Time // only those that were archived then or later
	Before time.Time // only those that were archived before
	After  string    // the cursor of the last thread seen
	Limit  int       // maximum number; 0 means all
}

// Archived yields the tenant's threads that are in the archive, in the order of their
// creation.
func (r *Runtime) Archived(ctx context.Context, o ArchivedOptions) iter.Seq2[ArchivedThread, error] {
	return func(yield func(ArchivedThread, error) bool) {
		n := 0
		for a, err := range r.vault().List(ctx, o.After) {
			if err != nil {
				yield(ArchivedThread{}, fmt.Errorf("perdure: listing archived threads: %w", err))
				return
			}
			item := archivedThread(a.Archived)
			item.Cursor = a.Cursor
			if o.User != "" && item.User != o.User || item.Archived.Before(o.From) || !o.Before.IsZero() && !item.Archived.Before(o.Before) {
				continue
			}
			if !yield(*item, nil) {
				return
			}
			if n++; o.Limit > 0 && n >= o.Limit {
				return
			}
		}
	}
}

func (r *Runtime) vault() *vault.Vault { return vault.New(r.tenant, r.life, r.core.opts.Archive) }
