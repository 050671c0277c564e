// Package vault puts threads away in an archive and gets them back. It may import
// internal/archive, lifecycle and threads, what those import, and the public package
// archive.
package vault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	public "github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Vault archives and restores the threads of a tenant.
type Vault struct {
	threads *threads.Threads
	tenant  *threads.Tenant
	life    *lifecycle.Control
	exports *archive.Archive
	place   public.Place
}

// New returns the vault of a tenant's threads. The place may be nil: then nothing is
// archived or restored.
func New(t *threads.Tenant, life *lifecycle.Control, place public.Place) *Vault {
	return &Vault{threads: t.All, tenant: t, life: life, exports: archive.New(t, nil), place: place}
}

// mostTries bounds how often an operation begins anew while others interfere.
const mostTries = 20

// check returns an error if there is no archive. Whether there is such a thread comes
// first.
func (v *Vault) check(ctx context.Context, id string) error {
	if v.place == nil {
		if _, err := v.tenant.Find(ctx, id); err != nil && !errors.Is(err, fault.ErrArchived) {
			return err
		}
		return fmt.Errorf("%w: there is no archive; set Options.Archive, or --archive URL", fault.ErrInvalid)
	}
	return nil
}

// Archive writes a thread to the archive, reads it back, and removes it from the
// store: see perdure.Runtime.Archive. It can be repeated at any point, and several
// processes may do it at the same time:
//
//  1. a cell says that there may be objects of the thread;
//  2. the object is written, read back and checked;
//  3. the cell gets what is needed to restore it, for the thread's last sequence;
//  4. an `erased` entry follows that sequence, which decides it, and the thread is
//     removed as in an erase: see lifecycle.
func (v *Vault) Archive(ctx context.Context, id string, n lifecycle.Note) (*threads.Archived, error) {
	err := n.Check()
	if err == nil {
		err = v.check(ctx, id)
	}
	if err == nil {
		err = v.threads.CheckMoved(ctx)
	}
	if err != nil {
		return nil, err
	}
	for range mostTries {
		var a *threads.Archived
		if a, err = v.archive(ctx, id, n); err == nil {
			return a, nil
		}
		if !errors.Is(err, errAgain) && !(errors.Is(err, fault.ErrStale) && n.IfSeq == 0) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: thread %s keeps changing: %w", fault.ErrBusy, id, err)
}

// errAgain says that another process has interfered.
var errAgain = errors.New("perdure: the thread has changed")

func (v *Vault) archive(ctx context.Context, id string, n lifecycle.Note) (*threads.Archived, error) {
	o, err := v.tenant.Open(ctx, id)
	if errors.Is(err, fault.ErrArchived) {
		return v.archivedAlready(ctx, id)
	}
	if err == nil {
		err = v.checkRest(ctx, o)
	}
	if err == nil {
		err = fault.CheckSeq(o.Thread, id, n.IfSeq)
	}
	if err == nil {
		err = v.Begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	a, err := v.write(ctx, o)
	if err != nil {
		if gone, _ := v.threads.IsErased(ctx, o.Name); gone { // while it was read
			return nil, errAgain
		}
		return nil, fmt.Errorf("perdure: archiving thread %s: %w", id, err)
	}
	if err := v.life.PutAway(ctx, a, n); err != nil {
		return nil, err
	}
	return v.archivedAlready(ctx, id)
}

// archivedAlready returns what the store knows about an archived thread, after
// finishing what a process that died may have left.
func (v *Vault) archivedAlready(ctx context.Context, id string) (*threads.Archived, error) {
	a, err := v.find(ctx, id)
	if err != nil {
		return nil, err
	}
	switch a.State {
	case threads.InStore:
		return nil, errAgain
	case threads.Erasing:
		return nil, a.Error()
	case threads.Archiving: // its last entry is there
		if err := v.life.PutAway(ctx, a, lifecycle.Note{}); err != nil {
			return nil, err
		}
		return nil, errAgain
	}
	if err := v.life.FinishAway(ctx, a); err != nil {
		return nil, err
	}
	return a, v.deleteTries(ctx, a)
}

// find returns what the store knows about the archived thread with an id.
func (v *Vault) find(ctx context.Context, id string) (*threads.Archived, error) {
	cell, err := v.threads.Store.Get(ctx, v.tenant.IDKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	if err != nil {
		return nil, err
	}
	name := string(cell.Value)
	if self, away := threads.Away(name); away {
		name = self
	}
	a, _, err := v.threads.ReadArchived(ctx, name)
	if err == nil && (a == nil || v.tenant.Owner != nil && a.User != *v.tenant.Owner) {
		err = fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	return a, err
}

// checkRest returns an error unless nothing happens on a thread: no run of its own
// has not ended, and if it is a child, the run that spawned it has ended too. It
// makes sure that the parent knows how the child ended.
func (v *Vault) checkRest(ctx context.Context, o *threads.Opened) error {
	t := o.Thread
	if t.Foreign != "" {
		return fmt.Errorf("%w: thread %s is left alone: %s", fault.ErrNewer, t.ID, t.Foreign)
	}
	if run := t.Busy(); run != nil {
		return fmt.Errorf("%w, which is %s; a thread can be archived once all its runs have ended", &fault.BusyError{Thread: t.ID, Run: run.ID}, run.Status)
	}
	if len(t.Inbox) > 0 {
		return fmt.Errorf("%w, which waits; a thread can be archived once all its runs have ended", &fault.BusyError{Thread: t.ID, Run: t.Inbox[0].ID})
	}
	if err := v.life.CheckPins(ctx, o); err != nil || t.Parent == nil {
		return err
	}
	if err := v.life.TellParent(ctx, o); err != nil && !errors.Is(err, fault.ErrCorrupt) {
		return err
	}
	here, err := v.threads.Here(ctx, t.Parent.Name)
	if errors.Is(err, fault.ErrArchived) || threads.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := v.threads.Read(ctx, here)
	if threads.IsGone(err) || errors.Is(err, fault.ErrCorrupt) {
		return nil
	}
	if err != nil {
		return err
	}
	if run := parent.Thread.Run(t.Parent.Run); run != nil && run.ID == t.Parent.RunID && !run.Status.Final() {
		return fmt.Errorf("%w, which has spawned thread %s and is %s; a child can be archived once that run has ended", &fault.BusyError{Thread: parent.Thread.ID, Run: run.ID}, t.ID, run.Status)
	}
	return nil
}

// objectName returns a new name for an object of a thread.
func objectName(self string, seq uint64) string {
	return self + "/" + strconv.FormatUint(seq, 10) + "-" + strings.ToLower(rand.Text()) + ".jsonl.gz"
}

// Purge deletes all objects of a thread that nobody archives any more. As long as
// someone may, only those go that are known not to be needed: another process may have
// written one, and be about to rely on it.
func (v *Vault) Purge(ctx context.Context, self string) error {
	names := []string{self + "/none"} // for what a Put that was killed has left
	for name, err := range v.place.List(ctx, self+"/", "") {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := v.place.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Holds reports whether the place of this process is the one that an object of a thread
// was written to. Without an object, which may be deleted already, that is the same URL
// and, as far as that is known, the same id.
func (v *Vault) Holds(ctx context.Context, a *threads.Archived, object string) (bool, error) {
	if a.Place == "" || a.Place == v.URL() && v.same(a) {
		return true, nil
	}
	if object == "" {
		return false, nil
	}
	for name, err := range v.place.List(ctx, object, "") {
		return name == object, err
	}
	return false, nil
}

// Late is a place that is opened when it is first needed.
type Late interface {
	public.Place
	Place(ctx context.Context) (public.Place, error)
}

// Begin is called before anything is written to the place. The first time it notes in the
// store which archive is at this URL. It returns an error if that is another one than what
// is there now: its disk is probably not mounted.
func (v *Vault) Begin(ctx context.Context) error {
	at := v.place
	if late, ok := at.(Late); ok {
		var err error
		if at, err = late.Place(ctx); err != nil {
			return err
		}
	}
	place, ok := at.(public.Identified)
	if !ok {
		return nil
	}
	known, err := v.Known(ctx)
	if err != nil || known {
		return err
	}
	id, err := v.usedBefore(ctx)
	if err == nil && id == "" {
		err = place.Begin(ctx)
		id = place.ID()
	}
	if err != nil || id == "" {
		return err
	}
	_, err = store.Update(ctx, v.threads.Store, v.placeKey(), func(old store.Cell) ([]byte, error) {
		if old.Version != "" {
			return nil, threads.ErrNothing // another process was faster
		}
		return []byte(id), nil
	})
	if err == nil || errors.Is(err, threads.ErrNothing) {
		_, err = v.Known(ctx)
	}
	return err
}

// usedBefore returns the id of the archive at the place's URL that threads were put in
// before stores noted that, "" if there is none.
func (v *Vault) usedBefore(ctx context.Context) (id string, err error) {
	for cell, err := range v.threads.Store.List(ctx, threads.ArchivedPrefix, "") {
		if err != nil {
			return "", err
		}
		a, err := threads.DecodeArchived(cell)
		switch {
		case err != nil || a.Place != v.URL() || a.In == "":
		case a.In == v.ID():
			return a.In, nil
		default:
			id = a.In
		}
	}
	return id, nil
}

// Known reports whether the store knows the archive at the place's URL. It returns an
// error if what is there is another one.
func (v *Vault) Known(ctx context.Context) (bool, error) {
	if v.place == nil {
		return false, nil
	}
	cell, err := v.threads.Store.Get(ctx, v.placeKey())
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err == nil && v.ID() != string(cell.Value) {
		err = fmt.Errorf("%w: this store has put threads in the archive %s, and what is there now is another one, or nothing: mount its disk; a copy of a folder needs the file %s of the original, with the text %s", public.ErrUnavailable, v.URL(), public.MarkFile, cell.Value)
	}
	return err == nil, err
}

// Mounted returns an error if there is another archive at the place's URL than the one that
// the store has used, or none: what is not in it may be in that one.
func (v *Vault) Mounted(ctx context.Context) error {
	known, err := v.Known(ctx)
	if place, ok := v.place.(public.Identified); err != nil || known || !ok || place.ID() != "" {
		return err
	}
	if id, err := v.usedBefore(ctx); err != nil || id == "" {
		return err
	}
	return fmt.Errorf("%w: this store has put threads in the archive %s, and there is none now: mount its disk", public.ErrUnavailable, v.URL())
}

// placeKey is the key of the cell with the id of the archive at the place's URL.
func (v *Vault) placeKey() string {
	return "perdure/archive/" + threads.Base32.EncodeToString(v.threads.Hash("archive", v.URL())[:15])
}

// same reports whether nothing says that the place with the URL of a thread's objects is
// another one.
func (v *Vault) same(a *threads.Archived) bool { return a.In == "" || a.In == v.ID() }

// Missing returns the error for a thread whose object is in another place.
func (v *Vault) Missing(a *threads.Archived) error {
	if a.Place == v.URL() {
		return fmt.Errorf("%w: thread %s has an object in the archive %s, and the one that is there now is another: mount its disk; a copy of a folder needs the file %s of the original, with the text %s", public.ErrUnavailable, a.ID, a.Place, public.MarkFile, a.In)
	}
	return fmt.Errorf("%w: thread %s has an object in the archive %s, and the one of this process is %s; set Options.Archive, or --archive URL", fault.ErrInvalid, a.ID, a.Place, v.URL())
}

// ID tells the archive from others, if it can be.
func (v *Vault) ID() string {
	if i, ok := v.place.(public.Identified); ok {
		return i.ID()
	}
	return ""
}

// URL names the archive.
func (v *Vault) URL() string { return v.place.URL() }

// record returns what the cell of a thread says once its object is written.
func (v *Vault) record(ctx context.Context, o *threads.Opened) (*threads.Archived, error) {
	t := o.Thread
	a := &threads.Archived{State: threads.Archiving, From: o.Name, ID: t.ID, Tenant: v.tenant.Name, IDCell: v.tenant.IDKey(t.ID), User: t.User, Title: t.Title, Status: threads.StatusOf(t), Meta: t.Meta,
		Created: t.Created, Updated: t.Time, Seq: t.Seq, Head: t.Head.String(), Place: v.place.URL(), In: v.ID(), Object: objectName(threads.Self(o.Name), t.Seq)}
	if n := len(t.Runs); n > 0 {
		a.Flow = t.Runs[n-1].Flow
	}
	for _, of := range []*journal.Origin{t.Fork, t.Parent} {
		if of != nil && of.Name != "" {
			a.Of = append(a.Of, threads.Self(of.Name))
		}
	}
	var err error
	a.Roots, err = v.threads.Roots(ctx, o.Name)
	return a, err
}
