package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Erase erases the thread with an id, and with dependents also the threads that
// depend on it.
func (r *Control) Erase(ctx context.Context, id string, n Note, dependents bool) error {
	if err := n.Check(); err != nil {
		return err
	}
	for range mostTries {
		e := eraser{life: r, note: n, all: dependents, id: id}
		name, err := r.tenant.Find(ctx, id)
		if errors.Is(err, fault.ErrArchived) || errors.Is(err, fault.ErrNoThread) {
			err = e.fromArchive(ctx, id, err)
		} else if err == nil {
			err = e.canPurge(ctx, name)
			if err == nil {
				err = r.eraseWith(ctx, &e, name, id)
			}
			if err == nil && e.archived {
				continue // it was being archived: now it is in the archive
			}
		}
		if !errors.Is(err, errReturned) {
			return err
		}
	}
	return fmt.Errorf("%w: thread %s keeps being archived and restored", fault.ErrBusy, id)
}

// finishErase continues the erase of a thread, for callers that were not asked
// to erase it but found it erased.
func (r *Control) finishErase(ctx context.Context, name, id string) error {
	return r.eraseWith(ctx, &eraser{life: r, id: id, finishing: true}, name, id)
}

// FinishFound continues the erase of a thread whose journal says that it was
// erased, or is gone. The gate names the cell that leads to the thread; without
// a gate, idCell does, if the caller knows it. The gate goes last, since it is
// how the caller got here.
func (r *Control) FinishFound(ctx context.Context, name, idCell string) error {
	e := eraser{life: r, finishing: true}
	gate, err := r.threads.Store.Get(ctx, threads.GateKey(name))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, key, _ := strings.Cut(string(gate.Value), " "); threads.IsClosed(gate) && key != "" {
		idCell = key
	}
	if err := e.thread(ctx, name, idCell); err != nil {
		return fmt.Errorf("completing its erase: %w", err)
	}
	return e.last(ctx, name, idCell, archivedCell, threads.GateKey(name))
}

func (r *Control) eraseWith(ctx context.Context, e *eraser, name, id string) error {
	err := e.thread(ctx, name, r.tenant.IDKey(id))
	if err == nil {
		err = e.last(ctx, name, threads.GateKey(name), archivedCell, r.tenant.IDKey(id))
	}
	if err != nil {
		return fmt.Errorf("perdure: erasing thread %s: %w", id, err)
	}
	return nil
}

// eraser erases a thread and, if allowed, the threads that depend on it.
type eraser struct {
	life      *Control
	note      Note
	all       bool   // threads that depend on it may be erased too
	id        string // of the thread that it was asked to erase
	depth     int
	finishing bool
	closed    store.Version // of the gate, if this eraser closed it
	at        uint64        // the sequence of the thread that the gate is closed at; 0: at any
	archiving bool          // it leaves the thread in the archive
	archived  bool          // the thread went there, whatever was asked for
	byName    bool          // nobody knows its id: the gate and the archive's cell lead to it
}

// The bounds of an eraser.
const (
	mostDepth = 1000 // of forks of forks and children of children
	mostTries = 100  // while others keep forking and spawning
	mostMoves = 10   // while runs go on
)

// thread erases everything of a thread except its gate and the cell that leads
// to it.
func (e *eraser) thread(ctx context.Context, name, idCell string) error {
	o, err := e.life.threads.Read(ctx, name)
	if err != nil {
		// What is left of a fork that is in the archive cannot be read once the thread
		// it was forked from is gone too, and need not be.
		if a, awayErr := e.life.away(ctx, name); awayErr != nil {
			return awayErr
		} else if a != nil {
			return e.rest(ctx, a)
		}
	}
	switch {
	case errors.Is(err, fault.ErrErased):
		if err := e.mark(ctx, name, idCell); err != nil {
			return err
		}
	case err != nil && !errors.Is(err, fault.ErrCorrupt):
		return err
	case o.Thread.Foreign != "":
		return fmt.Errorf("%w: it is left alone: %s", fault.ErrNewer, o.Thread.Foreign)
	case o.Thread.Moved != "":
		return &fault.MovedError{Thread: o.Thread.ID, To: o.Thread.Moved}
	case e.finishing:
		return fmt.Errorf("%w: it is not erased", fault.ErrInvalid)
	default:
		if err := fault.CheckSeq(o.Thread, e.id, e.note.IfSeq); err != nil {
			return err
		}
		e.at = o.Thread.Seq
		if err := e.close(ctx, o, idCell); err != nil {
			return err
		}
		if err := e.life.threads.MarkLeaving(ctx, name, idCell); err != nil {
			return err
		}
	}
	if o, err = e.fenceWhereItIs(ctx, name, idCell); err != nil {
		return errors.Join(err, e.reopen(ctx, name, err))
	}
	if e.archived = o != nil && o.Thread.Archived; e.archived {
		if err := e.life.settle(ctx, name, idCell); err != nil {
			return err
		}
	}
	if o != nil {
		if t := o.Thread; idCell != "" && !e.archived && (t.Seq == 0 || t.Seq > t.Base+1) { // it had events, or nobody can tell
			if _, err := e.life.threads.Ensure(ctx, e.life.threads.UsedKey(idCell), []byte("{}")); err != nil {
				return err
			}
		}
		if err := e.testify(ctx, o); err != nil {
			return err
		}
		if err := e.clear(ctx, name, o.Thread); err != nil {
			return err
		}
	}
	return e.drop(ctx, name)
}

// drop drops the journal of a thread, even if it is already dropped: whoever did
// that may have failed or died before the bytes were gone. Dropping again finishes
// the job.
func (e *eraser) drop(ctx context.Context, name string) error {
	if err := e.life.threads.Store.Drop(ctx, threads.JournalKey(name)); err != nil {
		return err
	}
	// Again, because of late writers: from now on they find the tombstone.
	if err := e.life.threads.RemoveDerived(ctx, name); err != nil {
		return err
	}
	return e.life.threads.RemoveSummary(ctx, name)
}

// mark closes the gate of a thread that is already erased, as one that never
// began is before its gate is closed. From then on the gate leads to the id.
func (e *eraser) mark(ctx context.Context, name, idCell string) error {
	if idCell == "" || e.depth == 0 && !e.byName { // the id cell goes last anyway
		return nil
	}
	_, err := store.Update(ctx, e.life.threads.Store, threads.GateKey(name), func(gate store.Cell) ([]byte, error) {
		if threads.IsClosed(gate) {
			return nil, threads.ErrNothing
		}
		return []byte(threads.ClosedGate + " " + idCell), nil
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

// archivedCell stands for the cell that says where an archived thread is.
const archivedCell = "archived"

// last removes the last cells of a thread: its gate, the cell of its id, and the one
// that says that it was archived. As long as the last of them exists, it leads
// whoever comes next to what is left to do.
func (e *eraser) last(ctx context.Context, name string, keys ...string) error {
	certain := len(keys) - 1
	if keys[certain] == archivedCell { // most threads have none, and then nothing would lead here
		certain--
	}
	for i, key := range keys {
		var err error
		if i == certain { // workers need not come back for what is left then
			err = e.life.threads.Remove(ctx, threads.LeavingKey(name), "")
		}
		if err != nil {
			return err
		}
		switch key {
		case "": // it is not known
		case threads.GateKey(name):
			err = e.life.threads.Remove(ctx, key, "")
		case archivedCell:
			if !e.archived {
				err = e.life.forgetArchived(ctx, name)
			}
		default:
			err = e.unlead(ctx, key, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close closes the gate of a thread, after which nothing more can come to
// depend on it. The gate then holds the key of the cell that leads to the
// thread.
func (e *eraser) close(ctx context.Context, o *threads.Opened, idCell string) error {
	key := threads.GateKey(o.Name)
	for range mostTries {
		gate, err := e.life.threads.Store.Get(ctx, key)
		if err == nil && threads.IsClosed(gate) && !threads.IsClosedIf(gate) {
			return nil
		}
		if errors.Is(err, store.ErrNotFound) {
			var gone bool
			if gone, err = e.life.threads.IsDropped(ctx, o.Name); gone {
				return nil // by someone else, and the gate went with it
			}
		}
		if err != nil {
			return err
		}
		if idCell == "" && threads.IsClosed(gate) { // whoever closed it before knew the id
			_, idCell, _ = strings.Cut(string(gate.Value), " ")
		}
		mark := threads.ClosedGate
		if e.at != 0 {
			mark = threads.ClosedIf + strconv.FormatUint(e.at, 10)
		}
		switch err := e.dependents(ctx, o); {
		case errors.Is(err, errBegun):
			continue
		case err != nil:
			return err
		}
		// Closing it again keeps whoever closed it before from reopening it.
		e.closed, err = e.life.threads.Store.Put(ctx, key, []byte(mark+" "+idCell), gate.Version)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: it keeps being forked or spawning children", fault.ErrPinned)
}

// fenceWhereItIs fences a thread. Its gate is closed only as long as the thread does not
// move on, so that one whose erase was cut off here can fork and spawn again. One that has
// moved on is closed again; after some tries, wherever it is.
func (e *eraser) fenceWhereItIs(ctx context.Context, name, idCell string) (*threads.Opened, error) {
	for try := range mostMoves {
		o, err := e.fence(ctx, name)
		if !errors.Is(err, fault.ErrStale) || e.note.IfSeq != 0 {
			return o, err
		}
		switch o, err = e.life.threads.Read(ctx, name); {
		case err == nil, errors.Is(err, fault.ErrCorrupt):
			if e.at = o.Thread.Seq; try == mostMoves-2 {
				e.at = 0
			}
			if err := e.close(ctx, o, idCell); err != nil {
				return nil, errors.Join(err, e.life.threads.StaysAfterAll(ctx, name))
			}
		case !errors.Is(err, fault.ErrErased):
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it keeps moving on", fault.ErrBusy)
}

// reopen opens the gate of a thread that was not erased because it has
// advanced, if this eraser closed the gate and no other relies on that.
func (e *eraser) reopen(ctx context.Context, name string, why error) error {
	if !errors.Is(why, fault.ErrStale) || e.closed == "" {
		return nil
	}
	_, err := e.life.threads.Store.Put(ctx, threads.GateKey(name), []byte("open"), e.closed)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return errors.Join(err, e.life.threads.StaysAfterAll(ctx, name))
}

// dependents deals with the threads that depend on one. Live ones prevent the
// erase, or are erased if allowed; those that never began, or are half erased,
// are erased. It returns errBegun if one has begun in the meantime.
func (e *eraser) dependents(ctx context.Context, o *threads.Opened) error {
	pins, err := e.life.threads.Pins(ctx, o.Name)
	if err != nil {
		return err
	}
	var found []*dependent
	var alive, unborn []string
	for _, by := range pins {
		d, err := e.find(ctx, by)
		switch {
		case err != nil:
			return err
		case e.archiving && !d.hinders():
			continue
		case d.alive:
			alive = append(alive, cmp.Or(d.id, by))
		case d.unborn:
			unborn = append(unborn, d.name)
		}
		found = append(found, d)
	}
	if len(alive) > 0 && !e.all {
		slices.Sort(alive)
		return &fault.PinnedError{Thread: cmp.Or(o.Thread.ID, o.Name), By: alive}
	}
	if e.depth >= mostDepth {
		return fmt.Errorf("%w: more than %d threads depend on each other; erase the last ones first", fault.ErrInvalid, mostDepth)
	}
	for _, by := range unborn {
		if err := e.life.forestall(ctx, by); err != nil {
			return err
		}
	}
	for _, d := range found {
		if err := e.dependent(ctx, d); err != nil {
			return fmt.Errorf("erasing thread %s, which depends on it: %w", cmp.Or(d.id, d.by), err)
		}
		if err := e.life.threads.Unpin(ctx, o.Name, d.by); err != nil {
			return err
		}
	}
	return nil
}

// dependent erases a thread that depends on the one being erased.
func (e *eraser) dependent(ctx context.Context, d *dependent) error {
	for range mostTries {
		inner := eraser{life: e.life, note: e.note, all: e.all, depth: e.depth + 1}
		inner.note.IfSeq = 0 // it is the other thread's sequence
		var err error
		if d.name == "" {
			err = inner.archivedThread(ctx, d.by)
		} else {
			err = inner.named(ctx, d.name, d.id)
		}
		if err == nil && inner.archived {
			d.name = "" // it was being archived
			continue
		}
		if !errors.Is(err, errReturned) {
			return err
		}
		if d, err = e.find(ctx, d.by); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it keeps being archived and restored", fault.ErrBusy)
}

// named erases a dependent that is in the store. Its pin leads to it until it is
// gone, so its gate may go after its id cell, whose key the gate holds even when
// nothing else is left.
func (e *eraser) named(ctx context.Context, name, id string) error {
	idCell := ""
	if id != "" {
		idCell = e.life.tenant.IDKey(id)
	}
	err := e.canPurge(ctx, name)
	if err == nil {
		err = e.thread(ctx, name, idCell)
	}
	if err != nil {
		return err
	}
	if gate, err := e.life.threads.Store.Get(ctx, threads.GateKey(name)); err == nil {
		_, idCell, _ = strings.Cut(string(gate.Value), " ")
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return e.last(ctx, name, idCell, threads.GateKey(name), archivedCell)
}

// fence appends the entry after which nobody writes. It returns the thread, or
// nil if its journal is already dropped.
func (e *eraser) fence(ctx context.Context, name string) (*threads.Opened, error) {
	b := journal.Body{By: e.note.By, Reason: e.note.Reason}
	if e.archiving {
		b.Name = journal.ToArchive
	}
	o, _, err := e.life.threads.Amend(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		return []threads.Line{{Kind: journal.Erased, Body: b}}, nil, fault.CheckSeq(t, e.id, e.at)
	})
	switch {
	case errors.Is(err, store.ErrDropped):
		return nil, nil
	case err == nil, errors.Is(err, fault.ErrErased):
	case errors.Is(err, fault.ErrCorrupt):
		// Nobody appends to a journal that nobody can read: Drop is fence
		// enough.
	default:
		return nil, err
	}
	if o.Thread.Archived {
		return o, nil // its parent knows how it ended
	}
	if err := e.life.tellErased(ctx, o); err != nil && !errors.Is(err, fault.ErrCorrupt) {
		return nil, err // a damaged parent waits for nobody
	}
	return o, nil
}

// clear removes the cells of a thread. It comes before the journal is dropped:
// its entries tell which hints and pins to remove, and once Drop returns, a
// store keeps no byte of anything deleted before.
func (e *eraser) clear(ctx context.Context, name string, t *journal.Thread) error {
	if err := e.life.threads.RemoveDerived(ctx, name, flowsOf(t)...); err != nil {
		return err
	}
	if err := e.life.threads.RemoveSummary(ctx, name); err != nil {
		return err
	}
	if e.archived {
		return nil // pins stay, for its erase from the archive
	}
	if err := e.life.redactArchived(ctx, name); err != nil {
		return err
	}
	if err := store.DeletePrefix(ctx, e.life.threads.Store, threads.PinPrefix(name)); err != nil {
		return err
	}
	if e.depth > 0 {
		return nil // the pin leads to what is left to do
	}
	for _, from := range []*journal.Origin{t.Fork, t.Parent} {
		if from != nil && from.Name != "" {
			if err := e.life.threads.Unpin(ctx, from.Name, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// flowsOf returns the flows of all runs of a thread, each once.
func flowsOf(t *journal.Thread) []string {
	var flows []string
	for _, run := range slices.Concat(t.Runs, t.Inbox) {
		flows = append(flows, run.Flow)
	}
	slices.Sort(flows)
	return slices.Compact(flows)
}

// An erase goes through these steps, each of which can be repeated:
//
//  1. the gate of the thread is closed, at a moment without forks and children, and its
//     summary says that it may be leaving;
//  2. the entry `erased` fences whoever writes to the thread;
//  3. hints, snapshot, blobs, summary and pins go;
//  4. the journal is dropped, which leaves a tombstone;
//  5. the gate and the cell that leads from the id to the name go.
//
// The id cell goes last, so whoever comes with the id finds what is left to do:
// an interrupted erase is finished by the next erase or start. The cell that says that
// the thread may be leaving goes just before it, and leads workers here: see upkeep.
