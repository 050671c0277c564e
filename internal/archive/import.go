package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// ImportKey returns the key of the cell that marks an unfinished import. It is
// the first thing that an import writes and the last that it deletes.
func ImportKey(name string) string { return "import/" + name }

// The values of an import's cell. If a sweep takes a slow import for dead,
// whichever of the two changes the cell first decides.
const (
	importing     = "{}"
	importWhole   = "whole"    // anyone may show it
	importGivenUp = "given up" // anyone may drop it
)

// Import makes a thread from an export and returns the thread's id, which is
// as, or the exported one if as is "". Signers in trust are trusted for this
// import.
func (a *Archive) Import(ctx context.Context, rd io.Reader, as string, trust []string) (string, error) {
	if as != "" {
		if err := threads.CheckID(as); err != nil {
			return "", err
		}
	}
	if err := CheckKeys(trust); err != nil {
		return "", err
	}
	im := &importer{archive: a, as: as, trust: trust}
	err := im.importAll(ctx, rd)
	if err == nil {
		return im.as, nil
	}
	if im.name != "" && !im.open {
		// Even if the context has ended.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, im.dropWritten(clean))
	}
	return "", fmt.Errorf("perdure: importing thread %q: %w", im.as, err)
}

type importer struct {
	archive *Archive
	as      string
	user    string // the thread's owner, according to the first line
	from    string // the tenant, likewise
	n       uint64 // the number of entries, likewise

	trust []string
	name  string // "" before the first value or entry
	open  bool   // it may have completed, so what is written must stay

	seq   uint64   // of the last entry written
	batch [][]byte // entries not yet written
	size  int      // of the batch
}

func (im *importer) importAll(ctx context.Context, rd io.Reader) error {
	v, err := Read(ctx, rd, Taker{
		Head: func(h ExportHead) error { return im.takeHead(ctx, h) },
		Blob: func(ref blob.Ref, chunk int64) (*blob.Copy, error) {
			if err := im.named(ctx, im.user); err != nil {
				return nil, err
			}
			return blob.NewCopy(im.archive.threads.Store, threads.BlobPrefix(im.name), ref, chunk)
		},
		Entry: func(e journal.Entry, data []byte) error { return im.takeEntry(ctx, e, data) },
	})
	if err == nil {
		err = im.flush(ctx)
	}
	if err != nil {
		return err
	}
	if !v.OK() {
		return fmt.Errorf("%w: %s", fault.ErrCorrupt, v.Problem)
	}
	opened, err := im.fork(ctx, v)
	if err != nil {
		return err
	}
	return im.show(ctx, opened)
}

func (im *importer) takeHead(ctx context.Context, h ExportHead) error {
	im.as, im.user, im.from, im.n = cmp.Or(im.as, h.Thread), h.User, h.Tenant, h.Entries
	if h.Redacted {
		return fmt.Errorf("%w: the export is redacted: it can be verified, but not imported", fault.ErrInvalid)
	}
	if err := threads.CheckID(im.as); err != nil {
		return err
	}
	if err := im.archive.tenant.CheckNewID(ctx, im.as); err != nil {
		return err
	}
	switch _, err := im.archive.tenant.Find(ctx, im.as); {
	case err == nil:
		return fmt.Errorf("%w: %q", fault.ErrExists, im.as)
	case !errors.Is(err, fault.ErrNoThread):
		return err
	}
	return threads.Admit(ctx, threads.Growth{Thread: true})
}

func (im *importer) takeEntry(ctx context.Context, e journal.Entry, data []byte) error {
	if im.name == "" {
		b, err := e.Read()
		if err != nil {
			return fmt.Errorf("%w: entry 1: %w", fault.ErrCorrupt, err)
		}
		if err := im.named(ctx, b.User); err != nil {
			return err
		}
	}
	if len(im.batch) == store.MaxBatch || im.size+len(data) > store.MaxEntry {
		if err := im.flush(ctx); err != nil {
			return err
		}
	}
	im.batch, im.size = append(im.batch, data), im.size+len(data)
	return nil
}

// named gives the thread its name, which contains its owner.
func (im *importer) named(ctx context.Context, user string) error {
	if im.name != "" {
		return nil
	}
	if im.archive.tenant.Owner != nil && user != *im.archive.tenant.Owner {
		return fmt.Errorf("%w: the export is of a thread of %q, not of %q", fault.ErrInvalid, user, *im.archive.tenant.Owner)
	}
	if err := im.archive.threads.CheckMoved(ctx); err != nil {
		return err
	}
	im.name = im.archive.tenant.NewName(clock.Now(), threads.ImportMark(im.n), user)
	_, err := im.archive.threads.Ensure(ctx, ImportKey(im.name), []byte(importing))
	return err
}

// flush appends the entries that are not yet written.
func (im *importer) flush(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	last, err := store.AppendOnce(ctx, im.archive.threads.Store, threads.JournalKey(im.name), im.seq, im.batch...)
	if err != nil {
		return err
	}
	im.seq, im.batch, im.size = last, im.batch[:0], 0
	return nil
}

// fork checks the thread that the entries make, and appends where it comes
// from.
func (im *importer) fork(ctx context.Context, v *Verification) (*threads.Opened, error) {
	trusted, err := im.trusts(ctx, v.Signer)
	if err != nil {
		return nil, err
	}
	from := journal.Origin{Thread: v.Thread, Head: v.Head}
	if trusted {
		from.Key = v.Signer
	}
	o, _, err := im.archive.threads.Change(ctx, im.name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		switch {
		case t.Erased:
			return nil, nil, fmt.Errorf("%w: %q", fault.ErrErased, t.ID)
		case t.Seq != v.Good || t.Head.String() != v.Head:
			return nil, nil, fmt.Errorf("%w: %[3]d of %[2]d entries are present", fault.ErrCorrupt, v.Good, t.Seq)
		}
		return []threads.Line{{Kind: journal.Forked, Body: journal.Body{Thread: im.as, Tenant: im.archive.tenant.Name, At: t.Seq, Void: !trusted, From: &from}}}, nil, nil
	})
	return o, err
}

// show makes the thread visible.
func (im *importer) show(ctx context.Context, o *threads.Opened) error {
	t := o.Thread
	err := im.archive.threads.EnsureSummary(ctx, im.name, threads.Summary{ID: t.ID, User: t.User, Title: t.Title, Created: t.Created})
	if err == nil {
		err = im.archive.threads.Summarise(ctx, o)
	}
	if err != nil {
		return err
	}
	if err := im.mark(ctx, importWhole); err != nil {
		im.open = !errors.Is(err, errGivenUp)
		return err
	}
	held, err := im.archive.threads.Ensure(ctx, im.archive.tenant.IDKey(im.as), []byte(im.name))
	if err == nil {
		err = im.archive.threads.CheckKept(ctx)
	}
	if err != nil {
		im.open = true
		return err
	}
	if string(held) != im.name {
		return fmt.Errorf("%w: %q", fault.ErrExists, im.as)
	}
	im.open = true // the thread exists now
	if err := im.archive.threads.Remove(ctx, ImportKey(im.name), ""); err != nil {
		im.archive.threads.Log.Warn("tidying up behind an import", "thread", im.as, "error", err)
	}
	return nil
}

// errGivenUp says that someone else has decided about an import.
var errGivenUp = errors.New("perdure: the import was abandoned")

// mark decides what becomes of an import in progress.
func (im *importer) mark(ctx context.Context, what string) error {
	var err error
	for range 3 { // to be sure, if a response was lost
		_, err = store.Update(ctx, im.archive.threads.Store, ImportKey(im.name), func(old store.Cell) ([]byte, error) {
			switch string(old.Value) {
			case what:
				return nil, threads.ErrNothing
			case importing:
				return []byte(what), nil
			}
			return nil, errGivenUp
		})
		switch {
		case err == nil, errors.Is(err, threads.ErrNothing):
			return nil
		case errors.Is(err, errGivenUp):
			return err
		}
	}
	return err
}

func (im *importer) dropWritten(ctx context.Context) error {
	err := im.archive.threads.Store.Drop(ctx, threads.JournalKey(im.name))
	if err == nil {
		err = blob.Delete(ctx, im.archive.threads.Store, threads.BlobPrefix(im.name))
	}
	if err == nil {
		err = im.archive.threads.RemoveSummary(ctx, im.name)
	}
	if err == nil {
		err = im.archive.threads.Remove(ctx, ImportKey(im.name), "")
	}
	if err != nil {
		return fmt.Errorf("removing the partial import: %w", err)
	}
	return nil
}

// FinishImport finishes an interrupted import: a complete one is shown, any
// other dropped, which it reports. Damage is left alone: it is reported where
// the thread is read.
func (a *Archive) FinishImport(ctx context.Context, name string) (dropped bool, err error) {
	im := &importer{archive: a, name: name}
	switch err := im.mark(ctx, importGivenUp); {
	case err == nil:
		a.threads.Log.Info("an import that was cut off is dropped", "thread", name)
		return true, im.dropWritten(ctx)
	case !errors.Is(err, errGivenUp):
		return false, err
	}
	// It is complete, or done by now.
	o, err := a.threads.Read(ctx, name)
	switch {
	case errors.Is(err, fault.ErrErased):
		return false, im.dropWritten(ctx)
	case errors.Is(err, fault.ErrCorrupt), err == nil && o.Thread.Seq == 0:
		return false, nil
	case err != nil:
		return false, err
	}
	t := o.Thread
	held, err := a.threads.Ensure(ctx, a.threads.Tenant(t.Tenant).IDKey(t.ID), []byte(name))
	if err != nil {
		return false, err
	}
	if string(held) != name {
		return true, im.dropWritten(ctx) // it has been imported again since
	}
	return false, a.threads.Remove(ctx, ImportKey(name), "")
}
