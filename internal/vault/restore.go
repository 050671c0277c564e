package vault

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Restore brings an archived thread back into the store: see
// perdure.Runtime.Restore. It can be repeated at any point, and several processes may
// do it at the same time:
//
//  1. the thread's cell gets the name that the thread will have;
//  2. values and entries are written under that name, while the object is checked;
//  3. the thread is read, and its summary written;
//  4. the cell says that the thread is restored, which decides it, and the cell of
//     the id leads to it again.
func (v *Vault) Restore(ctx context.Context, id string, remove bool) (*threads.Archived, error) {
	if err := v.check(ctx, id); err != nil {
		return nil, err
	}
	if err := v.threads.CheckMoved(ctx); err != nil {
		return nil, err
	}
	var a *threads.Archived
	err := errAgain
	for range mostTries {
		if a, err = v.restore(ctx, id); !errors.Is(err, errAgain) {
			break
		}
	}
	if errors.Is(err, errAgain) {
		err = fmt.Errorf("%w: thread %s keeps being archived and restored", fault.ErrBusy, id)
	}
	if err == nil {
		err = v.threads.CheckKept(ctx)
	}
	if err == nil && remove {
		a, err = v.removeObject(ctx, a)
	}
	return a, err
}

func (v *Vault) restore(ctx context.Context, id string) (*threads.Archived, error) {
	name, err := v.tenant.Find(ctx, id)
	if err == nil {
		return v.restoredAlready(ctx, id, name)
	}
	if !errors.Is(err, fault.ErrArchived) {
		return nil, err
	}
	a, err := v.archivedAlready(ctx, id) // it also finishes what is left to do
	if err != nil {
		return nil, err
	}
	if a.State == threads.InArchive {
		if err := threads.Admit(ctx, threads.Growth{Thread: true}); err != nil {
			return nil, err
		}
	}
	a, err = v.threads.UpdateArchived(ctx, a.From, func(a *threads.Archived) (*threads.Archived, error) {
		switch {
		case a != nil && a.State == threads.Restoring:
			return a, threads.ErrNothing // go on with it
		case a == nil || a.State != threads.InArchive:
			return nil, errAgain
		}
		next := *a
		next.State, next.Name = threads.Restoring, threads.RestoredName(threads.Self(a.From))
		return &next, nil
	})
	if err != nil {
		return nil, err
	}
	o, err := v.fill(ctx, a)
	if err != nil {
		if errors.Is(err, store.ErrConflict) || threads.IsGone(err) { // another process writes the same, or has given up
			return nil, v.again(ctx, a)
		}
		// Even if the context has ended.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, v.unfill(clean, a, fmt.Errorf("perdure: restoring thread %s: %w", id, err))
	}
	return v.show(ctx, a, o)
}

// restoredAlready is for a thread that is in the store.
func (v *Vault) restoredAlready(ctx context.Context, id, name string) (*threads.Archived, error) {
	o, err := v.threads.Read(ctx, name)
	if errors.Is(err, fault.ErrErased) && o.Thread.Archived {
		_, err = v.archivedAlready(ctx, id) // it is on its way to the archive
		if err == nil {
			err = errAgain
		}
	}
	if err != nil {
		return nil, err
	}
	a, _, err := v.threads.ReadArchived(ctx, name)
	if err == nil && (a == nil || a.State != threads.InStore) {
		err = fmt.Errorf("%w: thread %s is not archived", fault.ErrNothingToDo, id)
	}
	if err != nil {
		return nil, err
	}
	return a, v.lead(ctx, a)
}

// fill writes the entries and values of an archived thread under its new name, and
// reads the thread.
func (v *Vault) fill(ctx context.Context, a *threads.Archived) (*threads.Opened, error) {
	w := &filler{vault: v, name: a.Name}
	w.theirs, w.stop = iter.Pull2(v.threads.Store.Read(ctx, threads.JournalKey(a.Name), 0))
	defer w.stop()
	if _, err := v.read(ctx, a, archive.Taker{
		Blob: func(ref blob.Ref, chunk int64) (*blob.Copy, error) {
			return blob.NewCopy(v.threads.Store, threads.BlobPrefix(a.Name), ref, chunk)
		},
		Entry: func(e journal.Entry, data []byte) error { return w.take(ctx, e.Seq, data) },
	}); err != nil {
		return nil, err
	}
	if err := w.flush(ctx); err != nil {
		return nil, err
	}
	o, err := v.threads.Read(ctx, a.Name)
	if err == nil && (o.Thread.Seq != a.Seq || o.Thread.Head.String() != a.Head) {
		err = fmt.Errorf("%w: %d of %d entries are present", fault.ErrCorrupt, o.Thread.Seq, a.Seq)
	}
	return o, err
}

// filler writes the entries of a thread that are not there yet. Another process may
// have written, or be writing, the same.
type filler struct {
	vault  *Vault
	name   string
	theirs func() (store.Entry, error, bool)
	stop   func()
	behind bool
	seq    uint64 // of the last entry in the journal
	batch  [][]byte
	size   int
}

func (w *filler) take(ctx context.Context, seq uint64, data []byte) error {
	if !w.behind {
		line, err, ok := w.theirs()
		switch {
		case err != nil:
			return fault.IfDropped(w.name, err)
		case ok && !bytes.Equal(line.Data, data):
			return fmt.Errorf("%w: entry %d of the thread that is being restored is another one", fault.ErrCorrupt, seq)
		case ok:
			return nil
		}
		w.stop()
		w.behind, w.seq = true, seq-1
	}
	if len(w.batch) == store.MaxBatch || len(w.batch) > 0 && w.size+len(data) > store.MaxEntry {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.batch, w.size = append(w.batch, data), w.size+len(data)
	return nil
}

func (w *filler) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	last, err := store.AppendOnce(ctx, w.vault.threads.Store, threads.JournalKey(w.name), w.seq, w.batch...)
	w.seq, w.batch, w.size = last, w.batch[:0], 0
	return fault.IfDropped(w.name, err)
}

// unfill gives up a restore that failed, and removes what was written. It returns why
// it failed, or errAgain if another process has completed it meanwhile.
func (v *Vault) unfill(ctx context.Context, a *threads.Archived, why error) error {
	given := false
	_, err := v.threads.UpdateArchived(ctx, a.From, func(now *threads.Archived) (*threads.Archived, error) {
		if given = now != nil && now.State == threads.Restoring && now.Name == a.Name; !given {
			return now, threads.ErrNothing
		}
		next := *now
		next.State, next.Name = threads.InArchive, ""
		return &next, nil
	})
	if err != nil {
		return errors.Join(why, err)
	}
	if again := v.again(ctx, a); !errors.Is(again, errAgain) || !given {
		return cmp.Or(again, why)
	}
	return why
}

// again returns errAgain, after removing what was written under a name that the thread
// has not, or no longer.
func (v *Vault) again(ctx context.Context, a *threads.Archived) error {
	now, _, err := v.threads.ReadArchived(ctx, a.From)
	if err != nil {
		return err
	}
	given := now == nil || now.State == threads.Erasing || now.Name != a.Name && now.From != a.Name // no process will use it
	if !given {
		if given, err = v.threads.IsDropped(ctx, a.Name); err != nil {
			return err
		}
	}
	if given {
		if err := v.life.DropRestored(ctx, a.Name); err != nil {
			return err
		}
	}
	return errAgain
}

// show makes a restored thread visible.
func (v *Vault) show(ctx context.Context, a *threads.Archived, o *threads.Opened) (*threads.Archived, error) {
	t := o.Thread
	err := v.threads.EnsureSummary(ctx, a.Name, threads.Summary{ID: t.ID, User: t.User, Title: t.Title, Created: t.Created})
	if err == nil {
		err = v.threads.SummariseRestored(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	now, err := v.threads.UpdateArchived(ctx, a.From, func(now *threads.Archived) (*threads.Archived, error) {
		switch {
		case now != nil && now.State == threads.InStore && now.Name == a.Name:
			return now, threads.ErrNothing
		case now == nil || now.State != threads.Restoring || now.Name != a.Name:
			return nil, errAgain
		}
		next := *now
		next.State, next.Back = threads.InStore, clock.Micros()
		return &next, nil
	})
	if errors.Is(err, errAgain) { // another process has decided otherwise
		return nil, v.again(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	return now, v.lead(ctx, now)
}

// lead makes the cell of the id lead to a restored thread. Until then it leads to the
// thread's own cell, which leads there too.
func (v *Vault) lead(ctx context.Context, a *threads.Archived) error {
	_, err := store.Update(ctx, v.threads.Store, v.tenant.IDKey(a.ID), func(old store.Cell) ([]byte, error) {
		if string(old.Value) != threads.AwayLead(threads.Self(a.Name)) {
			return nil, threads.ErrNothing
		}
		return []byte(a.Name), nil
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

// removeObject deletes the object of a thread that is restored.
func (v *Vault) removeObject(ctx context.Context, a *threads.Archived) (*threads.Archived, error) {
	if a.Object == "" {
		return a, nil
	}
	if held, err := v.Holds(ctx, a, a.Object); err != nil {
		return nil, err
	} else if !held {
		return nil, fmt.Errorf("the thread is restored, but its object was not deleted: %w", v.Missing(a))
	}
	if err := v.place.Delete(ctx, a.Object); err != nil {
		return nil, err
	}
	return v.threads.UpdateArchived(ctx, a.Name, func(now *threads.Archived) (*threads.Archived, error) {
		if now == nil || now.State != threads.InStore || now.Name != a.Name || now.Object != a.Object {
			return now, threads.ErrNothing
		}
		return &threads.Archived{State: threads.InStore, Name: now.Name, From: now.From, Roots: now.Roots, Back: now.Back, Place: now.Place, In: now.In, Tries: now.Tries}, nil
	})
}
