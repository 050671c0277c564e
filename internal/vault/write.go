package vault

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	public "github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// write writes the object of a thread, reads it back, and records it. If another
// process has recorded one for the same sequence, that is the one.
func (v *Vault) write(ctx context.Context, o *threads.Opened) (*threads.Archived, error) {
	fresh, err := v.record(ctx, o)
	if err != nil {
		return nil, err
	}
	// Before the object, so that whoever erases the thread, or archives it elsewhere,
	// knows to look for some.
	_, err = v.threads.UpdateArchived(ctx, o.Name, func(a *threads.Archived) (*threads.Archived, error) {
		if a == nil {
			a = &threads.Archived{State: threads.Archiving, From: o.Name}
		}
		if a.Live() != o.Name {
			return nil, errAgain
		}
		if err := v.checkOther(ctx, a); err != nil {
			return nil, err
		}
		next := *a
		next.Tries = append(without(a.Tries, fresh.Object), fresh.Object)
		if !a.HasObjects() {
			next.Place, next.In = v.place.URL(), v.ID()
		}
		return &next, nil
	})
	if err != nil {
		return nil, err
	}
	if err := v.put(ctx, o, fresh); err != nil {
		clean := context.WithoutCancel(ctx)
		deleted := v.place.Delete(clean, fresh.Object)
		if deleted == nil {
			deleted = v.forgetTries(clean, o.Name, fresh.Object)
		}
		if errors.Is(err, public.ErrUnavailable) && errors.Is(deleted, public.ErrUnavailable) {
			return nil, err // the place is away, which need not be said twice
		}
		return nil, errors.Join(err, deleted)
	}
	// A record is replaced only by one of a later sequence: then the journal has moved
	// past the earlier one, and nobody can remove the thread at that.
	useless := ""
	a, err := v.threads.UpdateArchived(ctx, o.Name, func(a *threads.Archived) (*threads.Archived, error) {
		switch {
		case a == nil || a.Live() != o.Name:
			return nil, errAgain
		case a.Object == fresh.Object: // it was written, and the answer lost
			useless = ""
			return a, threads.ErrNothing
		case a.State == threads.Archiving && a.Object != "" && a.Seq >= fresh.Seq:
			useless = fresh.Object
			return a, threads.ErrNothing
		}
		useless, fresh.Tries = a.Object, without(a.Tries, fresh.Object)
		return fresh, nil
	})
	if errors.Is(err, errAgain) {
		useless = fresh.Object
	} else if err != nil {
		return nil, err // it may be recorded
	}
	if useless != "" {
		deleted := v.place.Delete(ctx, useless)
		if deleted == nil && useless == fresh.Object {
			deleted = v.forgetTries(ctx, o.Name, useless)
		}
		err = errors.Join(err, deleted)
	}
	return a, err
}

func without(names []string, gone ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(gone, name) })
}

// forgetTries makes the cell of a thread forget objects that are deleted.
func (v *Vault) forgetTries(ctx context.Context, name string, objects ...string) error {
	_, err := v.threads.UpdateArchived(ctx, name, func(a *threads.Archived) (*threads.Archived, error) {
		if a == nil || len(without(a.Tries, objects...)) == len(a.Tries) {
			return a, threads.ErrNothing
		}
		next := *a
		next.Tries = without(a.Tries, objects...)
		return &next, nil
	})
	return err
}

// deleteTries deletes what processes that died while they archived a thread have left.
// It is in the archive, so nobody who still writes an object of it comes to rely on that.
func (v *Vault) deleteTries(ctx context.Context, a *threads.Archived) error {
	if len(a.Tries) == 0 {
		return nil
	}
	if held, err := v.Holds(ctx, a, a.Object); err != nil || !held {
		return err
	}
	for _, object := range a.Tries {
		if err := v.place.Delete(ctx, object); err != nil {
			return err
		}
	}
	return v.forgetTries(ctx, a.From, a.Tries...)
}

// checkOther returns an error if there may be objects of a thread in another archive.
// They would be forgotten there, and an erase would not find them.
func (v *Vault) checkOther(ctx context.Context, a *threads.Archived) error {
	if !a.HasObjects() {
		return nil
	}
	for _, object := range append([]string{a.Object}, a.Tries...) {
		if held, err := v.Holds(ctx, a, object); err != nil || held {
			return err
		}
	}
	if a.Place == v.URL() {
		return v.Missing(a)
	}
	todo := "delete it there first, with perdure unarchive --remove"
	if a.State == threads.Archiving || a.Object == "" {
		todo = "complete that first, with perdure archive"
	}
	return fmt.Errorf("%w: it has an object in another archive, or an attempt to archive it there was interrupted: %s and --archive %s", fault.ErrInvalid, todo, a.Place)
}

// put writes an object, reads it back, and fills in its sum and size.
func (v *Vault) put(ctx context.Context, o *threads.Opened, a *threads.Archived) error {
	if _, seals := store.As[interface{ Seals() bool }](v.threads.Store); seals {
		a.Key = make([]byte, keySize)
		rand.Read(a.Key)
	}
	content, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(v.encode(ctx, o, a, w))
	}()
	sum := newSummed(content)
	err := v.place.Put(ctx, a.Object, sum)
	content.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // if the place has not read all of it
	<-done
	if err != nil {
		return err
	}
	a.Sum, a.Size = sum.text(), sum.n
	if _, err := v.read(ctx, a, archive.Taker{}); err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	if f, ok := v.place.(public.Freezer); ok {
		return f.Freeze(ctx, a.Object)
	}
	return nil
}

// encode writes the content of an object: a compressed export, encrypted if there is
// a key.
func (v *Vault) encode(ctx context.Context, o *threads.Opened, a *threads.Archived, w io.Writer) error {
	out := io.WriteCloser(nopCloser{w})
	if a.Key != nil {
		out = newSealer(w, a.Key)
	}
	zip := gzip.NewWriter(out)
	if err := v.exports.ExportOpened(ctx, o, zip, false); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return out.Close()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// read reads the object of an archived thread and passes its parts to take. It
// returns an error unless the object is, to the last byte, the one that was written,
// and holds that thread. Parts may have been passed on before that is known.
func (v *Vault) read(ctx context.Context, a *threads.Archived, take archive.Taker) (*archive.Verification, error) {
	damaged := func(err error) error {
		return fmt.Errorf("%w: the object %s of thread %s in %s is not the one that was written; nothing was changed: %w", fault.ErrCorrupt, a.Object, a.ID, v.place.URL(), err)
	}
	content, err := v.place.Get(ctx, a.Object)
	if errors.Is(err, public.ErrNotFound) && (a.Place != v.URL() || !v.same(a)) {
		return nil, fmt.Errorf("%w: %w", v.Missing(a), err)
	}
	if errors.Is(err, public.ErrNotFound) {
		return nil, damaged(err)
	}
	if err != nil {
		return nil, err
	}
	defer content.Close()
	sum := newSummed(io.LimitReader(content, a.Size+1))
	// A damaged object is read to its end too, so that a failing place is told from
	// damage.
	buffered := bufio.NewReaderSize(sum, 64<<10)
	plain := io.Reader(buffered)
	if a.Key != nil {
		plain = newOpener(buffered, a.Key)
	}
	found, err := v.readPlain(ctx, a, plain, take)
	if err != nil && !errors.Is(err, errDamaged) {
		return nil, errors.Join(err, sum.err)
	}
	if _, restErr := io.Copy(io.Discard, buffered); restErr != nil {
		return nil, restErr
	}
	switch {
	case sum.err != nil:
		return nil, sum.err
	case err != nil:
		return nil, damaged(err)
	case sum.n != a.Size:
		return nil, damaged(fmt.Errorf("it has %d bytes, or more, instead of %d", sum.n, a.Size))
	case sum.text() != a.Sum:
		return nil, damaged(errors.New("it has another SHA-256"))
	}
	return found, nil
}

// errDamaged marks errors that say that an object is damaged.
var errDamaged = errors.New("damaged")

func (v *Vault) readPlain(ctx context.Context, a *threads.Archived, plain io.Reader, take archive.Taker) (*archive.Verification, error) {
	zip, err := gzip.NewReader(plain)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	next, name := take.Head, ""
	take.Head = func(h archive.ExportHead) error {
		name = h.Name
		if h.Thread != a.ID || h.Tenant != v.tenant.Name || h.Name != threads.Self(a.From) || h.Entries != a.Seq || h.Redacted {
			return fmt.Errorf("%w: it holds %d entries of thread %q, and not the %d of this one", errDamaged, h.Entries, h.Thread, a.Seq)
		}
		if next != nil {
			return next(h)
		}
		return nil
	}
	found, err := archive.Read(ctx, zipReader{zip}, take)
	if err != nil {
		return nil, err
	}
	own, err := v.exports.ExportKey(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case !found.OK():
		return nil, fmt.Errorf("%w: %s", errDamaged, found.Problem)
	case found.Head != a.Head || name != threads.Self(a.From):
		return nil, fmt.Errorf("%w: its last entry has the hash %s, not %s", errDamaged, found.Head, a.Head)
	case found.Signer != own:
		return nil, fmt.Errorf("%w: it is signed by %s, not by this store", errDamaged, found.Signer)
	}
	return found, nil
}

// zipReader tells damage of a compressed file from failures of what is below.
type zipReader struct{ zip *gzip.Reader }

func (z zipReader) Read(p []byte) (int, error) {
	n, err := z.zip.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return n, err
}

// summed counts and hashes what is read.
type summed struct {
	r   io.Reader
	h   hash.Hash
	n   int64
	err error // of the reader, if it failed
}

func newSummed(r io.Reader) *summed { return &summed{r: r, h: sha256.New()} }

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	s.h.Write(p[:n])
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (s *summed) text() string { return base64.RawURLEncoding.EncodeToString(s.h.Sum(nil)) }
