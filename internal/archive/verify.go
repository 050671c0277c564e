// Package archive exports threads to files, reads and verifies such files, and
// imports them. It may import internal/threads and what that imports.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Archive exports, verifies and imports the threads of a tenant.
type Archive struct {
	threads *threads.Threads
	tenant  *threads.Tenant
	trust   []string // public keys of trusted signers of imports
}

// New returns the archive of a tenant's threads.
func New(t *threads.Tenant, trust []string) *Archive {
	return &Archive{threads: t.All, tenant: t, trust: trust}
}

// Verification is the result of checking a thread or an export: see
// perdure.Verification.
type Verification struct {
	Thread   string
	Tenant   string
	Entries  uint64
	Good     uint64
	Head     string
	Blobs    int
	Bytes    int64
	Redacted bool
	Signer   string
	Problem  string
}

// OK reports whether no problem was found.
func (v *Verification) OK() bool { return v.Problem == "" }

func (v *Verification) bad(format string, args ...any) {
	if v.Problem == "" {
		v.Problem = fmt.Sprintf(format, args...)
	}
}

func (v *Verification) took(e journal.Entry, size int) {
	v.Good, v.Head = e.Seq, e.Hash.String()
	v.Bytes += int64(size)
}

// Verify checks a thread.
func (a *Archive) Verify(ctx context.Context, thread string) (*Verification, error) {
	v := &Verification{Thread: thread, Tenant: a.tenant.Name}
	name, err := a.tenant.Find(ctx, thread)
	if threads.IsDamage(err) {
		v.bad("it cannot be found: %v", err)
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	return a.verifyNamed(ctx, name, v)
}

// VerifyNamed checks the thread with a name, whose id need not lead to it.
func (a *Archive) VerifyNamed(ctx context.Context, name string) (*Verification, error) {
	return a.verifyNamed(ctx, name, &Verification{})
}

func (a *Archive) verifyNamed(ctx context.Context, name string, v *Verification) (*Verification, error) {
	thread := v.Thread
	seen, _ := a.threads.ReadSummary(ctx, name) // before the journal, which must reach at least that far
	o := threads.Empty(name)
	if err := a.verifyEntries(ctx, o, v); err != nil {
		return nil, fmt.Errorf("perdure: verifying thread %s after entry %d: %w", thread, v.Good, err)
	}
	t := o.Thread
	leaving := false
	if !v.OK() {
		var err error
		if leaving, err = a.threads.IsLeaving(ctx, name); err != nil {
			return nil, fmt.Errorf("perdure: verifying thread %s: %w", thread, err)
		}
		v.Thread = cmp.Or(v.Thread, t.ID, seen.ID)
	}
	switch {
	case t.Erased, leaving:
		return nil, fmt.Errorf("%w: %q", fault.ErrErased, thread)
	case v.Entries == 0 && v.OK() && seen.Seq == 0:
		return nil, fmt.Errorf("%w: %q", fault.ErrNoThread, thread)
	case v.Entries < seen.Seq:
		v.bad("the journal ends at entry %d, but entry %d was there once: its tail is missing", v.Entries, seen.Seq)
	case v.OK() && thread != "" && t.ID != thread:
		v.bad("the id leads to the thread %q", t.ID)
	}
	if !v.OK() && v.Good > 0 {
		v.Problem += fmt.Sprintf("; the thread is intact up to entry %d, where it can be forked", v.Good)
	}
	return v, nil
}

// verifyEntries folds a thread up to the first problem. It returns an error if
// the store fails.
func (a *Archive) verifyEntries(ctx context.Context, o *threads.Opened, v *Verification) error {
	if err := a.threads.Place(ctx, o); errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt) {
		v.bad("it is not known where the thread was forked: %v", err)
		return nil
	} else if err != nil {
		return err
	}
	blobs := map[string]bool{}
	for line, err := range a.threads.Entries(ctx, o.Name, 0, 0) {
		if errors.Is(err, fault.ErrCorrupt) || errors.Is(err, store.ErrCorrupt) {
			v.bad("after entry %d: %v", v.Good, err)
			return nil
		}
		if err != nil {
			return err
		}
		if v.Entries++; !v.OK() {
			continue
		}
		e, refs, err := a.verifyEntry(ctx, o, line)
		if reading := (*threads.ReadError)(nil); errors.As(err, &reading) {
			return reading.Err
		}
		if err != nil {
			v.bad("entry %d: %v", line.Seq, err)
			if o.Thread.Base != 0 && line.Seq == o.Thread.Base+1 {
				// A fork's own first entry says where the fork begins.
				v.Problem += "; so it is not certain after which entry it was forked: fork that thread again"
				v.Good, v.Head = 0, ""
			}
			continue
		}
		for _, ref := range refs {
			if blobs[ref.Hash] {
				continue
			}
			if _, err := a.threads.BlobHome(ctx, o.Name, ref); threads.DamagedBlob(err) {
				v.bad("entry %d: the value of %d bytes that it refers to: %v", line.Seq, ref.Size, err)
				break
			} else if err != nil {
				return err
			}
			blobs[ref.Hash] = true
			v.Blobs++
			v.Bytes += ref.Size
		}
		if v.OK() {
			v.took(e, len(line.Data))
		}
	}
	return nil
}

// verifyEntry checks the next entry of a thread and folds it.
func (a *Archive) verifyEntry(ctx context.Context, o *threads.Opened, line store.Entry) (journal.Entry, []blob.Ref, error) {
	e, err := journal.Decode(o.Thread.Head, line.Seq, line.Data)
	if errors.Is(err, journal.ErrNewer) {
		return e, nil, fmt.Errorf("it cannot be checked here: it is %w, or damaged", err)
	}
	if err == nil && line.Seq != o.Thread.Seq+1 {
		err = fmt.Errorf("it follows entry %d", o.Thread.Seq)
	}
	if err != nil {
		return e, nil, err
	}
	b, err := e.Read()
	if err != nil && e.Kind.Known() {
		return e, nil, fmt.Errorf("its body: %w", err)
	}
	if e.Kind == journal.Forked && b.From != nil && (b.At != o.Thread.Seq || b.From.Head != "" && b.From.Head != o.Thread.Head.String()) {
		return e, nil, fmt.Errorf("it says that the thread was forked after entry %d with the hash %s", b.At, b.From.Head)
	}
	return e, b.Refs(), a.threads.Fold(ctx, o, e)
}
