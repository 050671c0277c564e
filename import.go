package perdure

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

// ImportOptions say what becomes of an export.
type ImportOptions struct {
	As    string   // the id of the new thread; "": the one that it had
	Trust []string // public keys, see [Runtime.ExportKey], by which the file may be signed, beside the store's own and those in Options
}

// importCell marks what belongs to an import that is not done. It is the first
// thing that an import writes and the last that it deletes.
func importCell(name string) string { return "import/" + name }

// What the cell of an import says. Between an import that is slow and a sweep
// that takes it for dead, whoever changes it first decides.
const (
	importing     = "{}"
	importWhole   = "whole"    // it is to be shown, by anyone
	importGivenUp = "given up" // it is to be dropped, by anyone
)

// Import makes a thread of an export and returns its id. The entries keep their
// exact bytes and their chain; behind them stands an entry which says where
// they come from. The thread is as a fork is: runs that were active are paused,
// so that nothing goes on here before Resume, children that were not finished are
// spawned anew, and Keys are others.
//
// Whoever writes a file can make up what people have decided, and its hashes. So
// answers are void as they are in a fork, open asks are asked anew, and the
// thread is shown as imported for ever, unless the file is signed by a key that
// is trusted here: that of this store, or one in Options, for a thread of the
// same tenant, or one in ImportOptions.
//
// The whole file is checked on the way, and nothing of the thread is seen
// before all of it is there: damage is ErrCorrupt, and what was written is
// dropped. An id that is taken is ErrExists. A redacted export is ErrInvalid.
func (r *Runtime) Import(ctx context.Context, rd io.Reader, o ImportOptions) (string, error) {
	if o.As != "" {
		if err := threads.CheckID(o.As); err != nil {
			return "", err
		}
	}
	if err := checkKeys(o.Trust); err != nil {
		return "", err
	}
	im := &importer{Runtime: r, as: o.As, trust: o.Trust}
	err := im.all(ctx, rd)
	if err == nil {
		return im.as, nil
	}
	if im.name != "" && !im.open {
		// Also if the context has ended.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, im.drop(clean))
	}
	return "", fmt.Errorf("perdure: importing thread %q: %w", im.as, err)
}

// importer is one import.
type importer struct {
	*Runtime
	as   string
	user string // whose thread it is, as the first line says
	from string // the tenant, as it says
	n    uint64 // how many entries there are, as it says

	trust []string
	name  string // "" before the first value or entry
	open  bool   // it may be done, or not: what is written must stay

	seq   uint64   // of the entries that are written
	batch [][]byte // those that are not yet
	size  int      // of the batch
}

func (im *importer) all(ctx context.Context, rd io.Reader) error {
	v, err := unpack(ctx, rd, taker{
		head: func(h exportHead) error { return im.begin(ctx, h) },
		blob: func(ref blob.Ref, chunk int64) (*blob.Copy, error) {
			if err := im.named(ctx, im.user); err != nil {
				return nil, err
			}
			return blob.NewCopy(im.threads.Store, threads.BlobPrefix(im.name), ref, chunk)
		},
		entry: func(e journal.Entry, data []byte) error { return im.entry(ctx, e, data) },
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

// begin looks at the first line.
func (im *importer) begin(ctx context.Context, h exportHead) error {
	im.as, im.user, im.from, im.n = cmp.Or(im.as, h.Thread), h.User, h.Tenant, h.Entries
	if h.Redacted {
		return fmt.Errorf("%w: the export is redacted: it can be verified, but there is nothing in it to go on with", fault.ErrInvalid)
	}
	if err := threads.CheckID(im.as); err != nil {
		return err
	}
	if err := im.tenant.CheckNewID(ctx, im.as); err != nil {
		return err
	}
	switch _, err := im.tenant.Find(ctx, im.as); {
	case err == nil:
		return fmt.Errorf("%w: %q", fault.ErrExists, im.as)
	case !errors.Is(err, fault.ErrNoThread):
		return err
	}
	return nil
}

// entry takes the next entry.
func (im *importer) entry(ctx context.Context, e journal.Entry, data []byte) error {
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

// named gives the thread its name, in which its owner is.
func (im *importer) named(ctx context.Context, user string) error {
	if im.name != "" {
		return nil
	}
	if im.tenant.Owner != nil && user != *im.tenant.Owner {
		return fmt.Errorf("%w: the export is of a thread of %q, not of %q", fault.ErrInvalid, user, *im.tenant.Owner)
	}
	im.name = im.tenant.NewName(clock.Now(), threads.ImportMark(im.n), user)
	_, err := im.threads.Ensure(ctx, importCell(im.name), []byte(importing))
	return err
}

// flush appends the entries that are not yet.
func (im *importer) flush(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	last, err := store.AppendOnce(ctx, im.threads.Store, threads.JournalKey(im.name), im.seq, im.batch...)
	if err != nil {
		return err
	}
	im.seq, im.batch, im.size = last, im.batch[:0], 0
	return nil
}

// fork checks what the entries mean, and appends that the thread goes on here
// under another name.
func (im *importer) fork(ctx context.Context, v *Verification) (*threads.Opened, error) {
	trusted, err := im.trusts(ctx, v.Signer)
	if err != nil {
		return nil, err
	}
	from := journal.Origin{Thread: v.Thread, Head: v.Head}
	if trusted {
		from.Key = v.Signer
	}
	o, _, err := im.threads.Change(ctx, im.name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		switch {
		case t.Erased:
			return nil, nil, fmt.Errorf("%w: %q", fault.ErrErased, t.ID)
		case t.Seq != v.Good || t.Head.String() != v.Head:
			return nil, nil, fmt.Errorf("%w: of %d entries %d are there", fault.ErrCorrupt, v.Good, t.Seq)
		}
		return []threads.Line{{Kind: journal.Forked, Body: journal.Body{Thread: im.as, Tenant: im.tenant.Name, At: t.Seq, Void: !trusted, From: &from}}}, nil, nil
	})
	return o, err
}

// show makes the thread known.
func (im *importer) show(ctx context.Context, o *threads.Opened) error {
	t := o.Thread
	err := im.threads.EnsureSummary(ctx, im.name, threads.Summary{ID: t.ID, User: t.User, Title: t.Title, Created: t.Created})
	if err == nil {
		err = im.threads.Summarise(ctx, o)
	}
	if err != nil {
		return err
	}
	if err := im.mark(ctx, importWhole); err != nil {
		im.open = !errors.Is(err, errGivenUp)
		return err
	}
	held, err := im.threads.Ensure(ctx, im.tenant.IDKey(im.as), []byte(im.name))
	if err != nil {
		im.open = true
		return err
	}
	if string(held) != im.name {
		return fmt.Errorf("%w: %q", fault.ErrExists, im.as)
	}
	im.open = true // it is there now
	if err := im.threads.RemoveCell(ctx, importCell(im.name)); err != nil {
		im.threads.Log.Warn("tidying up behind an import", "thread", im.as, "error", err)
	}
	return nil
}

// errGivenUp says that another has decided about an import.
var errGivenUp = errors.New("perdure: the import was taken for dead")

// mark decides what becomes of an import that is under way.
func (im *importer) mark(ctx context.Context, what string) error {
	var err error
	for range 3 { // to be sure, where an answer was lost
		_, err = store.Update(ctx, im.threads.Store, importCell(im.name), func(old store.Cell) ([]byte, error) {
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

// drop removes what was written.
func (im *importer) drop(ctx context.Context) error {
	err := im.threads.Store.Drop(ctx, threads.JournalKey(im.name))
	if err == nil {
		err = blob.Delete(ctx, im.threads.Store, threads.BlobPrefix(im.name))
	}
	if err == nil {
		err = im.threads.RemoveCell(ctx, threads.JournalKey(im.name))
	}
	if err == nil {
		err = im.threads.RemoveCell(ctx, importCell(im.name))
	}
	if err != nil {
		return fmt.Errorf("dropping what was written: %w", err)
	}
	return nil
}
