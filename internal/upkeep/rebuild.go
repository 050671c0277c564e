// Package upkeep restores what was lost: it rebuilds hints and summaries from
// journals, and finishes interrupted imports and erases. It may import
// internal/threads, lifecycle and archive, and what those import.
package upkeep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Rebuild restores everything that follows from the journals of all tenants and
// was lost.
func Rebuild(ctx context.Context, t *threads.Threads) (*Rebuilt, error) {
	b := &rebuilder{threads: t, step: func(string) error { return ctx.Err() }}
	if err := cmp.Or(b.rebuildAll(ctx, ""), b.bad); err != nil {
		return &b.found, fmt.Errorf("perdure: rebuilding: %w", err)
	}
	return &b.found, nil
}

// Rebuilt counts what was found: see perdure.Rebuilt.
type Rebuilt struct {
	Threads, Hints, Summaries, Damaged, Orphans int
}

// control returns the control of a tenant's threads, to finish erases.
func (b *rebuilder) control(tenant string) *lifecycle.Control {
	return lifecycle.New(b.threads.Tenant(tenant), 0, nil)
}

type rebuilder struct {
	threads *threads.Threads
	found   Rebuilt
	step    func(after string) error // called after each thread, with its name
	parent  *threads.Opened          // the parent read last: its children are often next to each other
	bad     error                    // the first damage that it skipped
}

// rebuildPage is how many names are read at a time, so that no loop over the
// store is open for long.
const rebuildPage = 256

// rebuildAll finishes imports and erases, and then goes through the journals
// after a name.
func (b *rebuilder) rebuildAll(ctx context.Context, after string) error {
	young, err := b.finishImports(ctx)
	if err != nil {
		return err
	}
	if err := b.finishErases(ctx); err != nil {
		return err
	}
	if err := b.finishLeaving(ctx); err != nil {
		return err
	}
	prefix := threads.JournalKey("")
	for {
		names, more, err := b.page(ctx, prefix, prefix+after)
		for _, name := range names {
			after = name
			if young[name] {
				b.found.Orphans++
			} else if err := b.goOn(b.rebuildThread(ctx, name)); err != nil {
				return fmt.Errorf("thread %s: %w", name, err)
			}
			if err := b.step(after); err != nil {
				return err
			}
		}
		if err := b.goOn(err); err != nil {
			return err
		}
		if !more {
			_, err := b.threads.SweepIndex(ctx, func(name string) (bool, error) {
				made, ok := threads.MadeAt(name)
				if !ok || clock.Now().Sub(made) < startDead {
					return false, nil
				}
				return b.control("").AbandonUnborn(ctx, name)
			})
			return err
		}
	}
}

// goOn notes damage that cannot be repaired, which a Rebuild skips, and returns
// any other error.
func (b *rebuilder) goOn(err error) error {
	if !threads.IsDamage(err) {
		return err
	}
	b.found.Damaged++
	b.bad = cmp.Or(b.bad, err)
	b.threads.Log.Warn("a journal or a cell is damaged", "error", err)
	return nil
}

// page returns the names of the next threads, and whether there are more.
func (b *rebuilder) page(ctx context.Context, prefix, after string) (names []string, more bool, err error) {
	for key, err := range b.threads.Store.Journals(ctx, after) {
		if err != nil {
			return names, false, err
		}
		name, ok := strings.CutPrefix(key, prefix)
		if !ok {
			break
		}
		if len(names) == rebuildPage {
			return names, true, nil
		}
		names = append(names, name)
	}
	return names, false, nil
}

func (b *rebuilder) rebuildThread(ctx context.Context, name string) error {
	s, there, err := b.summary(ctx, name)
	if err != nil {
		return err
	}
	if done, err := b.finished(ctx, name, s); err != nil {
		return err
	} else if done {
		b.found.Threads++
		return b.rebuildIndex(ctx, name)
	}
	o, err := b.threads.Read(ctx, name)
	tenant, idCell := b.threads.Tenant(o.Thread.Tenant), ""
	if o.Thread.ID != "" {
		idCell = tenant.IDKey(o.Thread.ID)
	}
	switch {
	case errors.Is(err, fault.ErrErased):
		b.found.Orphans++
		return b.control(o.Thread.Tenant).FinishFound(ctx, name, idCell)
	case errors.Is(err, fault.ErrCorrupt):
		b.found.Damaged++
		b.threads.Log.Warn("a thread is damaged", "thread", name, "error", err)
	case err != nil:
		return err
	}
	if idCell == "" {
		b.found.Threads++ // it is not known whose it is
		return nil
	}
	idle := err != nil || o.Thread.Foreign != "" || o.Thread.Moved != ""
	cell, err := b.threads.Store.Get(ctx, idCell)
	if errors.Is(err, store.ErrCorrupt) {
		var led string
		led, err = tenant.MendID(ctx, o.Thread.ID, err)
		cell.Value = []byte(led)
	}
	if err == nil && threads.Self(name) != name {
		var done bool
		if done, err = b.restored(ctx, name, &cell); done {
			return err
		}
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && string(cell.Value) != name {
		b.found.Orphans++
		b.threads.Log.Warn("no id leads to a thread", "thread", name)
		return nil
	}
	if err != nil {
		return err
	}
	b.found.Threads++
	// A thread that cannot be read, or needs a newer version, is listed all the
	// same.
	if err := b.rebuildSummary(ctx, o, s, there); err != nil {
		return err
	}
	if err := b.rebuildIndex(ctx, name); err != nil || idle {
		return err
	}
	return b.rebuildHints(ctx, o)
}

// restored looks at a thread that was restored: the cell of its id need not lead
// to it yet, which it mends. It reports whether the thread is left alone, as it is
// not complete.
func (b *rebuilder) restored(ctx context.Context, name string, idCell *store.Cell) (bool, error) {
	self, away := threads.Away(string(idCell.Value))
	if !away || self != threads.Self(name) {
		return false, nil
	}
	a, _, err := b.threads.ReadArchived(ctx, name)
	switch {
	case err != nil:
		return true, err
	case a == nil || a.Name != name || a.State != threads.Restoring && a.State != threads.InStore:
		return false, nil
	case a.State == threads.Restoring:
		b.found.Orphans++
		return true, nil
	}
	_, err = b.threads.Store.Put(ctx, idCell.Key, []byte(name), idCell.Version)
	if errors.Is(err, store.ErrConflict) {
		err = nil // another process has done it
	}
	idCell.Value = []byte(name)
	return err != nil, err
}

// summary returns the summary of a thread, and whether there is one.
func (b *rebuilder) summary(ctx context.Context, name string) (s threads.Summary, there bool, err error) {
	cell, err := store.Derived(b.threads.Store).Get(ctx, threads.JournalKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return s, false, nil
	}
	if err == nil && json.Unmarshal(cell.Value, &s) != nil {
		s = threads.Summary{}
	}
	return s, err == nil, err
}

// finished reports whether a summary is as new as the journal and says that
// nothing is left to do. A child never counts: its end may still have to be
// reported.
func (b *rebuilder) finished(ctx context.Context, name string, s threads.Summary) (bool, error) {
	if !s.Status.Final() || s.Seq == 0 || s.Rough || s.Parent != "" {
		return false, nil
	}
	last := uint64(0)
	for line, err := range b.threads.Entries(ctx, name, s.Seq-1, s.Seq+1) {
		if err != nil {
			return false, nil // reading all of it will tell what is wrong
		}
		last = line.Seq
	}
	return last == s.Seq, nil
}

// rebuildSummary makes sure that a thread has an up-to-date summary.
func (b *rebuilder) rebuildSummary(ctx context.Context, o *threads.Opened, s threads.Summary, there bool) error {
	if there && s.Seq >= o.Thread.Seq && !s.Rough {
		return nil
	}
	if !there {
		// As Start writes it: if the thread is being erased, the next list
		// finds it empty and removes it.
		t := o.Thread
		if err := b.threads.EnsureSummary(ctx, o.Name, threads.Summary{ID: t.ID, User: t.User, Title: t.Title, Created: t.Created}); err != nil {
			return err
		}
		gone, err := b.threads.IsErased(ctx, o.Name)
		if gone {
			return b.threads.RemoveSummary(ctx, o.Name)
		}
		if err != nil && !errors.Is(err, fault.ErrCorrupt) {
			return err
		}
	}
	b.found.Summaries++
	return b.threads.Summarise(ctx, o)
}

// rebuildIndex makes sure that lists find a thread.
func (b *rebuilder) rebuildIndex(ctx context.Context, name string) error {
	missing, err := b.threads.CompleteIndexed(ctx, name)
	if missing > 0 {
		b.found.Summaries++
	}
	return err
}

// rebuildHints makes sure that workers look at a thread when it is due.
func (b *rebuilder) rebuildHints(ctx context.Context, o *threads.Opened) error {
	now := clock.Micros()
	at := dueAt(o.Thread, now)
	if flow, err := b.untold(ctx, o); err != nil {
		return err
	} else if flow != "" {
		at[flow] = 1
	}
	for flow, when := range at {
		wrote, err := due.Remind(ctx, b.threads.Store, flow, o.Name, o.Thread.Seq, when, now)
		if err != nil {
			return err
		}
		if wrote {
			b.found.Hints++
		}
	}
	return nil
}

// dueAt returns when a thread is due, by flow; 1 is now.
func dueAt(t *journal.Thread, now int64) map[string]int64 {
	at := map[string]int64{}
	soon := func(flow string, when int64) {
		if old, ok := at[flow]; !ok || when < old {
			at[flow] = when
		}
	}
	if run, _ := t.Next(now, func(*journal.Run) bool { return false }); run != nil {
		soon(run.Flow, 1)
	}
	for _, run := range t.Runs {
		switch {
		case run.Held:
		case run.Status == journal.StatusBlocked:
			soon(run.Flow, 1) // for workers with other code
		case run.Status == journal.StatusSuspended && run.Due() != 0:
			soon(run.Flow, run.Due())
		}
	}
	return at
}

// untold returns the flow of a child whose end its parent does not know, "" for
// any other thread.
func (b *rebuilder) untold(ctx context.Context, o *threads.Opened) (string, error) {
	from := o.Thread.Parent
	if from == nil {
		return "", nil
	}
	run := o.Thread.RunByID(b.threads.ChildRunID(o.Thread.ID))
	if run == nil || !run.Status.Final() {
		return "", nil
	}
	if b.parent == nil || b.parent.Name != from.Name {
		at, err := b.threads.Here(ctx, from.Name)
		if errors.Is(err, fault.ErrArchived) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		parent, err := b.threads.Read(ctx, at)
		if threads.IsGone(err) || errors.Is(err, fault.ErrCorrupt) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		b.parent = parent
	}
	id := o.Thread.ID
	if _, child := lifecycle.Awaits(b.parent.Thread, from, journal.ChildSignal(id), lifecycle.EndKey(id, run.EndSeq)); child == nil {
		return "", nil
	}
	return run.Flow, nil
}

// startDead is the age from which on a start that has written nothing but cells of the
// index is taken for dead. One that is not is refused, and begins anew.
const startDead = time.Hour

// importDead is the age from which on an import is taken for dead.
const importDead = time.Hour

// finishImports finishes interrupted imports: a complete one is shown, any
// other dropped. It returns the names of those that may still be in progress.
func (b *rebuilder) finishImports(ctx context.Context) (map[string]bool, error) {
	young := map[string]bool{}
	err := b.cells(ctx, archive.ImportKey(""), func(cell store.Cell, name string) error {
		made, ok := threads.MadeAt(name)
		if !ok || clock.Now().Sub(made) < importDead {
			young[name] = true
			return nil
		}
		dropped, err := archive.New(b.threads.Tenant(""), nil).FinishImport(ctx, name)
		if dropped {
			b.found.Orphans++
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", name, err)
		}
		return nil
	})
	return young, err
}

// finishErases finishes interrupted erases that the gates of threads tell of.
func (b *rebuilder) finishErases(ctx context.Context) error {
	return b.cells(ctx, threads.GateKey(""), func(gate store.Cell, name string) error {
		if !threads.IsClosed(gate) {
			return nil
		}
		gone, err := b.threads.IsLeaving(ctx, name)
		if err != nil || !gone {
			return err
		}
		b.found.Orphans++
		return b.control("").FinishFound(ctx, name, "")
	})
}

// cells calls see for each cell under a prefix, a page at a time.
func (b *rebuilder) cells(ctx context.Context, prefix string, see func(cell store.Cell, rest string) error) error {
	for after := ""; ; {
		var page []store.Cell
		for cell, err := range b.threads.Store.List(ctx, prefix, after) {
			if err := b.goOn(err); err != nil {
				return err
			}
			if err != nil {
				break
			}
			if page = append(page, cell); len(page) == rebuildPage {
				break
			}
		}
		for _, cell := range page {
			if err := b.goOn(see(cell, strings.TrimPrefix(cell.Key, prefix))); err != nil {
				return err
			}
			after = cell.Key
		}
		if len(page) < rebuildPage {
			return nil
		}
		if err := b.step(""); err != nil {
			return err
		}
	}
}

// Interrupted imports and erases are found by the cells that mark them, even if
// nobody comes with their id.
