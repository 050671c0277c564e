package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// A thread leaves the store for the archive as it does in an erase: the gate is
// closed, an `erased` entry is the last, and everything else goes. What differs is
// that this entry says so, that the cell of the id leads to the cell that says where
// the thread is, and that pins stay. Whoever finds the erase unfinished continues it
// as what it is.

// Objects are the objects of archived threads.
type Objects interface {
	// Purge deletes all objects of the thread with a first name.
	Purge(ctx context.Context, self string) error
	// Holds reports whether the place is the one that an object of a thread, or any if
	// that is "", was written to: it may have another URL by now.
	Holds(ctx context.Context, a *threads.Archived, object string) (bool, error)
	// Missing returns the error for a thread whose object is in another place.
	Missing(a *threads.Archived) error
	// URL names the place, and ID tells it from others, if it can be.
	URL() string
	ID() string
}

// PutAway removes a thread whose archive is complete from the store. The cell of the
// archive has been written: a says what it holds. If the thread has moved on, the
// error is ErrStale.
func (r *Control) PutAway(ctx context.Context, a *threads.Archived, n Note) error {
	n.IfSeq = a.Seq
	e := eraser{life: r, note: n, id: a.ID, archiving: true}
	idCell := r.tenant.IDKey(a.ID)
	err := e.thread(ctx, a.From, idCell)
	if err == nil {
		err = e.last(ctx, a.From, idCell, threads.GateKey(a.From))
	}
	if err == nil && !e.archived {
		// It is gone already: erased, or archived by another process.
		now, _, readErr := r.threads.ReadArchived(ctx, a.From)
		if err = readErr; err == nil && (now == nil || now.State == threads.Erasing || now.Live() != "") {
			err = &fault.ErasedError{Thread: a.ID}
		}
	}
	return err
}

// settle records that a thread is in the archive, once its last entry says so. The
// summary goes first, so that the thread is never in both lists; whoever lists the
// archive in between settles it.
func (r *Control) settle(ctx context.Context, name, idCell string) error {
	if err := r.threads.RemoveSummary(ctx, name); err != nil {
		return err
	}
	_, err := r.threads.UpdateArchived(ctx, name, func(a *threads.Archived) (*threads.Archived, error) {
		if a == nil || a.State != threads.Archiving || a.From != name {
			return a, threads.ErrNothing
		}
		next := *a
		next.State, next.Name, next.At = threads.InArchive, "", clock.Micros()
		return &next, nil
	})
	if err != nil || idCell == "" {
		return err
	}
	_, err = store.Update(ctx, r.threads.Store, idCell, func(old store.Cell) ([]byte, error) {
		if string(old.Value) != name {
			return nil, threads.ErrNothing
		}
		return []byte(threads.AwayLead(threads.Self(name))), nil
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

// away returns the cell of a thread if it says that what is left under a name is in
// the archive, or was restored since, else nil.
func (r *Control) away(ctx context.Context, name string) (*threads.Archived, error) {
	a, _, err := r.threads.ReadArchived(ctx, name)
	if err != nil || a == nil || a.From != name || a.Live() == name {
		return nil, err
	}
	return a, nil
}

// rest removes what is left under the name of a thread that is in the archive.
func (e *eraser) rest(ctx context.Context, a *threads.Archived) error {
	e.archived = true
	if err := e.life.settle(ctx, a.From, a.IDCell); err != nil {
		return err
	}
	t := &journal.Thread{}
	if a.Flow != "" {
		t.Runs = append(t.Runs, &journal.Run{Flow: a.Flow})
	}
	if o, _ := e.life.threads.Read(ctx, a.From); o != nil { // what can be read of it
		t.Runs = append(t.Runs, o.Thread.Runs...)
	}
	if err := e.clear(ctx, a.From, t); err != nil {
		return err
	}
	return e.drop(ctx, a.From)
}

// FinishAway removes what a process that died while it archived a thread has left of
// it. In a store that has moved, there is nothing.
func (r *Control) FinishAway(ctx context.Context, a *threads.Archived) error {
	e := eraser{life: r}
	if err := e.rest(ctx, a); err != nil {
		return err
	}
	return e.last(ctx, a.From, threads.GateKey(a.From))
}

// unlead removes the cell of an id, unless it leads to another thread by now. The cell
// of a thread that was restored need not lead to it yet.
func (e *eraser) unlead(ctx context.Context, key, name string) error {
	c := e.life.threads
	if err := c.Remove(ctx, key, name); err != nil || e.archived || threads.Self(name) == name {
		return err
	}
	a, _, err := c.ReadArchived(ctx, name)
	if err == nil && (a == nil || a.Live() == name) {
		err = c.Remove(ctx, key, threads.AwayLead(threads.Self(name)))
	}
	return err
}

// forgetArchived removes the cell of a thread that was erased from the store, and
// its objects. Without an archive it leaves a cell that has objects, which says
// nothing more than that they are to be deleted.
func (r *Control) forgetArchived(ctx context.Context, name string) error {
	a, _, err := r.threads.ReadArchived(ctx, name)
	if err != nil || a == nil || a.Live() != name {
		return err
	}
	reached, err := r.reachesObjects(ctx, a)
	if err != nil {
		return err
	}
	if !reached && (a.HasObjects() || a.State == threads.Archiving) {
		_, err := r.threads.UpdateArchived(ctx, name, func(now *threads.Archived) (*threads.Archived, error) {
			if now == nil || now.Live() != name {
				return now, threads.ErrNothing
			}
			return &threads.Archived{State: threads.Erasing, From: name, Place: now.Place, In: now.In}, nil
		})
		return err
	}
	if r.objects != nil {
		if err := r.purge(ctx, threads.Self(name)); err != nil {
			return err
		}
	}
	return r.threads.Remove(ctx, threads.ArchivedKey(name), "")
}

// purge deletes the objects of a thread that can no longer be read.
func (r *Control) purge(ctx context.Context, self string) error {
	if err := r.objects.Purge(ctx, self); err != nil {
		return fmt.Errorf("%w; the thread is erased but for its object, which is still in the archive: repeat the erase once the archive can be used, or a worker does", err)
	}
	return nil
}

// redactArchived leaves in the cell of a thread that is being erased only what is needed
// to delete its objects. What goes with the cell itself, after the journal was dropped,
// a store may keep for a while.
func (r *Control) redactArchived(ctx context.Context, name string) error {
	_, err := r.threads.UpdateArchived(ctx, name, func(a *threads.Archived) (*threads.Archived, error) {
		if a == nil || a.Live() != name {
			return a, threads.ErrNothing
		}
		return &threads.Archived{State: a.State, From: a.From, Name: a.Name, Place: a.Place, In: a.In, Object: a.Object, Tries: a.Tries}, nil
	})
	return err
}

// canPurge returns an error if a thread has objects in an archive that this process
// does not know.
func (e *eraser) canPurge(ctx context.Context, name string) error {
	a, _, err := e.life.threads.ReadArchived(ctx, name)
	if err != nil || a == nil || a.Object == "" {
		return err
	}
	if reached, err := e.life.reachesObjects(ctx, a); reached || err != nil {
		return err
	}
	return e.life.noArchive(a)
}

// reachesObjects reports whether this process has the archive that the objects of a
// thread are in.
func (r *Control) reachesObjects(ctx context.Context, a *threads.Archived) (bool, error) {
	if r.objects == nil {
		return false, nil
	}
	return r.objects.Holds(ctx, a, a.Object)
}

// noArchive says that what is in the archive cannot be reached.
func (r *Control) noArchive(a *threads.Archived) error {
	if r.objects != nil {
		return r.objects.Missing(a)
	}
	return fmt.Errorf("%w: thread %s has an object in the archive %s, which this process was not given; set Options.Archive, or --archive URL", fault.ErrInvalid, a.ID, a.Place)
}

// errReturned says that a thread is not in the archive any more.
var errReturned = errors.New("perdure: the thread was restored")

// fromArchive erases the archived thread with an id, given why it was not found in
// the store.
func (e *eraser) fromArchive(ctx context.Context, id string, why error) error {
	r := e.life
	cell, err := r.threads.Store.Get(ctx, r.tenant.IDKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return why
	}
	if err != nil {
		return err
	}
	self, away := threads.Away(string(cell.Value))
	if !away && errors.Is(why, fault.ErrArchived) {
		return errReturned
	}
	if !away {
		return why
	}
	if err := e.archivedThread(ctx, self); err != nil {
		return err
	}
	return r.threads.Remove(ctx, cell.Key, string(cell.Value))
}

// archivedThread erases a thread with this first name from the archive. Each step
// can be repeated; the cell of the id, or the pin, leads here until all is done.
func (e *eraser) archivedThread(ctx context.Context, self string) error {
	r := e.life
	a, _, err := r.threads.ReadArchived(ctx, self)
	switch {
	case err != nil || a == nil:
		return err
	case a.Live() != "":
		return errReturned
	case r.tenant.Owner != nil && a.User != *r.tenant.Owner && a.State != threads.Erasing:
		return fmt.Errorf("%w: %q", fault.ErrNoThread, a.ID)
	case e.note.IfSeq != 0 && a.Seq != 0 && a.Seq != e.note.IfSeq:
		return &fault.StaleError{Thread: a.ID, Seq: a.Seq}
	}
	if reached, err := r.reachesObjects(ctx, a); err != nil {
		return err
	} else if !reached {
		return r.noArchive(a)
	}
	// Nobody comes to depend on it: its journal is gone.
	if err := e.dependents(ctx, threads.Seen(self, &journal.Thread{ID: a.ID})); err != nil {
		return err
	}
	if a.State != threads.Erasing {
		if err := r.tenant.NoteErased(ctx, a.User, threads.NotedArchived, self, a.Head); err != nil {
			return err
		}
	}
	if a, err = r.beginErasing(ctx, self); err != nil {
		return err
	}
	idCell := a.IDCell
	if idCell != "" { // else nothing leads here from the id any more
		if _, err := r.threads.Ensure(ctx, r.threads.UsedKey(idCell), []byte("{}")); err != nil {
			return err
		}
	}
	if err := r.purge(ctx, self); err != nil {
		return err
	}
	if a.Name != "" {
		if err := r.DropRestored(ctx, a.Name); err != nil {
			return err
		}
	}
	if err := r.FinishAway(ctx, a); err != nil {
		return err
	}
	if err := store.DeletePrefix(ctx, r.threads.Store, threads.PinPrefix(self)); err != nil {
		return err
	}
	if e.depth == 0 {
		for _, of := range a.Of {
			if err := r.threads.Unpin(ctx, of, self); err != nil {
				return err
			}
		}
	}
	// What leads here goes last: the cell of the id or, for a dependent, its own.
	cells := []string{threads.ArchivedKey(self), idCell}
	if e.depth > 0 || e.byName || idCell == "" {
		cells = []string{idCell, threads.ArchivedKey(self)}
	}
	for _, key := range cells {
		only := ""
		if key == idCell {
			only = threads.AwayLead(self)
		}
		if key == "" {
			continue
		}
		if err := r.threads.Remove(ctx, key, only); err != nil {
			return err
		}
	}
	return nil
}

// FinishErasing completes the erase of an archived thread whose cell says that it is
// being erased.
func (r *Control) FinishErasing(ctx context.Context, self string) error {
	err := (&eraser{life: r}).archivedThread(ctx, self)
	if errors.Is(err, errReturned) {
		return nil
	}
	return err
}

// CheckPins returns a PinnedError if threads that depend on one keep it from being
// archived.
func (r *Control) CheckPins(ctx context.Context, o *threads.Opened) error {
	pins, err := r.threads.Pins(ctx, o.Name)
	if err != nil {
		return err
	}
	var by []string
	for _, pin := range pins {
		d, err := (&eraser{life: r}).find(ctx, pin)
		if err != nil {
			return err
		}
		if d.alive && d.hinders() {
			by = append(by, cmp.Or(d.id, pin))
		}
	}
	if len(by) == 0 {
		return nil
	}
	slices.Sort(by)
	return &fault.PinnedError{Thread: o.Thread.ID, By: by}
}

// beginErasing decides that an archived thread is erased: from then on nobody
// restores it, and its cell does not tell whose it was.
func (r *Control) beginErasing(ctx context.Context, self string) (*threads.Archived, error) {
	a, err := r.threads.UpdateArchived(ctx, self, func(a *threads.Archived) (*threads.Archived, error) {
		switch {
		case a == nil || a.Live() != "":
			return nil, errReturned
		case a.State == threads.Erasing:
			return a, threads.ErrNothing
		}
		return &threads.Archived{State: threads.Erasing, From: a.From, Name: a.Name, IDCell: a.IDCell, Of: a.Of, Place: r.objects.URL(), In: r.objects.ID()}, nil
	})
	return a, err
}

// DropRestored removes what was restored of a thread that stays in the archive.
func (r *Control) DropRestored(ctx context.Context, name string) error {
	for range 2 { // cells again, because of a late writer, which from now on finds the tombstone
		if err := r.threads.RemoveDerived(ctx, name); err != nil {
			return err
		}
		if err := r.threads.RemoveSummary(ctx, name); err != nil {
			return err
		}
		if err := r.threads.Store.Drop(ctx, threads.JournalKey(name)); err != nil {
			return err
		}
	}
	return nil
}

// dependent is a thread that depends on one that is to leave the store.
type dependent struct {
	by     string // the first name, as pins have it
	name   string // the name that it has now, "" if it is in the archive
	id     string
	alive  bool // it is there
	unborn bool // it has not begun
	busy   bool // it is not at rest
}

// find looks at the thread that a pin names.
func (e *eraser) find(ctx context.Context, by string) (*dependent, error) {
	c := e.life.threads
	d := &dependent{by: by, name: by}
	a, _, err := c.ReadArchived(ctx, by)
	if err != nil {
		return nil, err
	}
	if a != nil {
		d.name, d.id = a.Live(), a.ID
	}
	if d.name == "" {
		d.alive = a.State != threads.Erasing
		return d, nil
	}
	o, readErr := c.Read(ctx, d.name)
	t := o.Thread
	if readErr != nil && !errors.Is(readErr, fault.ErrErased) && !errors.Is(readErr, fault.ErrCorrupt) {
		return nil, readErr
	}
	if d.id = t.ID; t.ID == "" {
		listed, err := c.ReadSummary(ctx, d.name)
		if err != nil {
			return nil, err
		}
		d.id = listed.ID
	}
	begun := t.Seq > 0 || t.Foreign != "" || readErr != nil
	d.alive, d.unborn = begun && (!errors.Is(readErr, fault.ErrErased) || t.Archived), !begun
	d.busy = readErr != nil && !t.Archived || t.Foreign != "" || t.Busy() != nil || len(t.Inbox) > 0
	return d, nil
}

// hinders reports whether a dependent keeps a thread from being archived: a fork
// reads entries of its journal, a child that runs reports to it. Others stay as they
// are, and so does their pin. What never began, or is half erased, is erased.
func (d *dependent) hinders() bool {
	return !d.alive || d.name != "" && (threads.IsFork(d.name) || d.busy)
}
