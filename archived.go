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

// Archive moves a thread from the store to [Options.Archive], as one compressed and
// signed object. The object is read back and checked before anything is removed. From
// then on every request for the thread returns an [ArchivedError], until Restore; its
// id cannot be used for another thread.
//
// All runs of the thread must have ended; otherwise Archive returns ErrBusy. If the
// thread is a child, the run that spawned it must have ended too. Forks of the thread,
// and children that are still running, keep it in the store: a [PinnedError] names them.
// Children that have ended stay where they are. A fork is archived with the past that it
// shares.
//
// Archive can be repeated after any error, and several processes may call it at once. It
// changes nothing if the thread is already archived. If it is interrupted, the thread may
// remain in the store and refuse forks until Archive is called again or the thread
// gets a new entry.
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

// Restore brings a thread back from the archive as it was. Unlike an import, the result
// is the same thread: its entries are the same bytes, decisions that people made still
// count, and step keys, event ids and ask ids are unchanged. So a failed run can be
// retried as if the thread had never been away, and readers of its events continue where
// they were.
//
// Everything is checked before the thread becomes visible. If the object differs in any
// byte from the one that was archived, Restore returns ErrCorrupt. If it has to be thawed
// first, Restore returns archive.ErrThawing, which says how to do that. It changes nothing
// if the thread is already restored, and returns ErrNothingToDo if it was never archived.
// Restore can be repeated after any error, and several processes may call it at once.
func (r *Runtime) Restore(ctx context.Context, thread string, o RestoreOptions) error {
	_, err := r.vault().Restore(ctx, thread, o.Remove)
	return err
}

// ArchivedOptions selects archived threads.
type ArchivedOptions struct {
	User   string
	From   time.Time // only threads archived at this time or later
	Before time.Time // only threads archived before this time
	After  string    // the cursor of the last thread seen
	Limit  int       // maximum number; 0 means all
}

// Archived yields the tenant's archived threads in order of creation.
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
