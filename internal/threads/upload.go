package threads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// An upload is a file that belongs to no thread yet. It has a cell that describes
// it, and its bytes are a blob under a prefix of their own. The cell is written
// before the bytes, and again with the blob's ref when they are complete; it is
// removed after them. So whatever dies when, the cell leads to all bytes, and
// ExpireUploads removes both when the time is over.

// UploadLife is how long an upload is kept.
const UploadLife = 24 * time.Hour

// Upload is the content of the cell of an upload.
type Upload struct {
	ID      string        `json:"-"`
	User    string        `json:"user,omitempty"`
	Expires int64         `json:"expires"`
	File    *journal.Blob `json:"file,omitempty"` // nil until all bytes are there
	Name    string        `json:"name,omitempty"`
	MIME    string        `json:"mime,omitempty"`
}

const (
	uploadPrefix = "upload/"
	bytesPrefix  = "uploaded/"
)

func (r *Tenant) uploadName(id string) string { return r.Part + "." + id }

// Receive stores what body yields as an upload. If it fails, it removes what it
// has written. Digest is the SHA-256 that the bytes must have, nil for any.
func (r *Tenant) Receive(ctx context.Context, u Upload, digest []byte, body io.Reader) (*Upload, error) {
	if err := r.All.CheckMoved(ctx); err != nil {
		return nil, err
	}
	var err error
	if u.User, err = r.NewOwner(u.User); err != nil {
		return nil, err
	}
	u.ID, u.Expires = NewRunID(), clock.Now().Add(UploadLife).UnixMicro()
	name := r.uploadName(u.ID)
	version, err := r.putUpload(ctx, name, &u, "")
	if err == nil {
		err = r.receive(ctx, name, &u, version, digest, body)
	}
	if err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.All.lease)
		defer cancel()
		if dropErr := r.All.dropUpload(bounded, name); dropErr != nil {
			r.All.Warn("removing an interrupted upload, which expires", dropErr)
		}
		return nil, fmt.Errorf("perdure: an upload: %w", err)
	}
	return &u, nil
}

func (r *Tenant) receive(ctx context.Context, name string, u *Upload, version store.Version, digest []byte, body io.Reader) error {
	sum := sha256.New()
	ref, err := blob.Put(ctx, r.All.Store, bytesPrefix+name+"/", io.TeeReader(body, sum))
	if err != nil {
		return err
	}
	if got := sum.Sum(nil); digest != nil && string(got) != string(digest) {
		return fmt.Errorf("%w: its SHA-256 is %x, not %x", fault.ErrInvalid, got, digest)
	}
	u.File = &journal.Blob{Sum: hex.EncodeToString(sum.Sum(nil)), Ref: ref, MIME: u.MIME, Name: u.Name}
	_, err = r.putUpload(ctx, name, u, version)
	return err
}

// putUpload writes the cell of an upload. An unanswered write is repeated by
// reading.
func (r *Tenant) putUpload(ctx context.Context, name string, u *Upload, prev store.Version) (store.Version, error) {
	value, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	version, err := r.All.Store.Put(ctx, uploadPrefix+name, value, prev)
	if err == nil {
		return version, nil
	}
	if cell, getErr := r.All.Store.Get(ctx, uploadPrefix+name); getErr == nil && string(cell.Value) == string(value) {
		return cell.Version, nil
	}
	return "", err
}

// FindUpload returns a complete upload that has not expired.
func (r *Tenant) FindUpload(ctx context.Context, id string) (*Upload, error) {
	missing := fmt.Errorf("%w: %.80q; uploads expire after %d hours", fault.ErrNoUpload, id, int(UploadLife.Hours()))
	if raw, err := Base32.DecodeString(id); err != nil || len(raw) != 15 {
		return nil, missing
	}
	cell, err := r.All.Store.Get(ctx, uploadPrefix+r.uploadName(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	u := &Upload{ID: id}
	if err := json.Unmarshal(cell.Value, u); err != nil {
		return nil, fmt.Errorf("%w: upload %s: %w", fault.ErrCorrupt, id, err)
	}
	if u.File == nil || u.Expires <= clock.Now().UnixMicro() || r.Owner != nil && u.User != *r.Owner {
		return nil, missing
	}
	return u, nil
}

// CopyUpload copies the bytes of an upload to a thread.
func (r *Tenant) CopyUpload(ctx context.Context, id, thread string) (journal.Blob, error) {
	u, err := r.FindUpload(ctx, id)
	if err != nil {
		return journal.Blob{}, err
	}
	fail := func(err error) (journal.Blob, error) {
		if errors.Is(err, store.ErrNotFound) { // it has expired since it was found
			err = fmt.Errorf("%w: %q", fault.ErrNoUpload, id)
		}
		return journal.Blob{}, fmt.Errorf("perdure: attaching upload %s: %w", id, err)
	}
	size, chunks, err := blob.Chunks(ctx, r.All.Store, bytesPrefix+r.uploadName(id)+"/", u.File.Ref)
	if err != nil {
		return fail(err)
	}
	to, err := blob.NewCopy(r.All.Store, BlobPrefix(thread), u.File.Ref, size)
	if err != nil {
		return fail(err)
	}
	for chunk, err := range chunks {
		if err == nil {
			err = to.Add(ctx, chunk)
		}
		if err != nil {
			return fail(err)
		}
	}
	if err := to.Close(ctx); err != nil {
		return fail(err)
	}
	return *u.File, nil
}

// DropUpload removes an upload. The threads that it was attached to have their own
// copy.
func (r *Tenant) DropUpload(ctx context.Context, id string) error {
	u, err := r.FindUpload(ctx, id)
	if err != nil {
		return err
	}
	return r.All.dropUpload(ctx, r.uploadName(u.ID))
}

func (c *Threads) dropUpload(ctx context.Context, name string) error {
	if err := blob.Delete(ctx, c.Store, bytesPrefix+name+"/"); err != nil {
		return err
	}
	return c.Remove(ctx, uploadPrefix+name, "")
}

// ExpireUploads removes the uploads whose time is over, also those that were
// interrupted. It can itself be interrupted and repeated.
func (c *Threads) ExpireUploads(ctx context.Context) (int, error) {
	now, n := clock.Now().UnixMicro(), 0
	var old []string
	for u, err := range c.uploads(ctx, "") {
		if err != nil {
			return 0, err
		}
		if u.Expires <= now {
			old = append(old, u.ID)
		}
	}
	for _, name := range old {
		if err := c.dropUpload(ctx, name); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// uploads yields the uploads whose names begin with a prefix; ID is the whole name.
// One that cannot be read has expired.
func (c *Threads) uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		for cell, err := range c.Store.List(ctx, uploadPrefix+prefix, "") {
			u := Upload{}
			if err == nil && json.Unmarshal(cell.Value, &u) != nil {
				u = Upload{}
			}
			u.ID = strings.TrimPrefix(cell.Key, uploadPrefix)
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}

// LeastUpload is what an upload counts at least in a quota: one without bytes takes a
// cell.
const LeastUpload = 4 << 10

// UploadBytes returns how many bytes the tenant's uploads have, and how many more they
// count in a quota.
func (r *Tenant) UploadBytes(ctx context.Context) (bytes, more int64, err error) {
	for u, err := range r.All.uploads(ctx, r.Part+".") {
		if err != nil {
			return 0, 0, err
		}
		size := int64(0)
		if u.File != nil {
			size = u.File.Ref.Size
		}
		bytes, more = bytes+size, more+max(0, LeastUpload-size)
	}
	return bytes, more, nil
}

// DropUploads removes the uploads of the users that of selects, also those that are
// not complete. It first calls each with the name of each, which has nothing of the
// user.
func (r *Tenant) DropUploads(ctx context.Context, of func(user string) bool, each func(name string) error) error {
	own, err := r.uploadsOf(ctx, of)
	for _, name := range own {
		if err == nil {
			err = each(name)
		}
		if err == nil {
			err = r.All.dropUpload(ctx, name)
		}
	}
	return err
}

// CountUploads returns how many uploads users have.
func (r *Tenant) CountUploads(ctx context.Context, of func(user string) bool) (int, error) {
	own, err := r.uploadsOf(ctx, of)
	return len(own), err
}

func (r *Tenant) uploadsOf(ctx context.Context, of func(user string) bool) (names []string, err error) {
	for u, err := range r.All.uploads(ctx, r.Part+".") {
		if err != nil {
			return names, err
		}
		if of(u.User) {
			names = append(names, u.ID)
		}
	}
	return names, nil
}

// OpenBlob returns a file that a thread was given, and its bytes in chunks.
func (c *Threads) OpenBlob(ctx context.Context, o *Opened, sum string) (journal.Blob, iter.Seq2[[]byte, error], error) {
	file, ok := o.Thread.Blobs[sum]
	if !ok {
		return file, nil, fmt.Errorf("%w: the thread has no file %.80q", fault.ErrNoUpload, sum)
	}
	var chunks iter.Seq2[[]byte, error]
	_, err := c.blobHome(ctx, o.Name, func(name string) (err error) {
		_, chunks, err = blob.Chunks(ctx, c.Store, BlobPrefix(name), file.Ref)
		return err
	})
	return file, chunks, err
}

// LoadBlob returns the bytes of a file that a thread was given.
func (c *Threads) LoadBlob(ctx context.Context, name string, file journal.Blob) ([]byte, error) {
	if err := scaleOf(ctx).Value(ctx, file.Ref.Size); err != nil {
		return nil, err
	}
	raw, err := c.loadBlob(ctx, name, file.Ref)
	if DamagedBlob(err) {
		c.MarkDamaged(ctx, Empty(name))
		err = fmt.Errorf("%w: a file of %d bytes: %w", fault.ErrCorrupt, file.Ref.Size, err)
	}
	return raw, err
}
