package threads

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// A thread's name in the store is <tenant>.<incarnation>: a keyed hash of the
// tenant, and a random part that begins with the time of creation and ends with
// a keyed hash of the owner. The journal and the summary cell are named after it,
// so both sort by time of creation, and due work is grouped by owner. A cell under
// a keyed hash of tenant and thread id holds the name. No name contains user text.

// Base32 encodes names and ids. It preserves order, and is lower case.
var Base32 = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// JournalKey is the key of a thread's journal, and of the cell of its summary.
func JournalKey(name string) string { return "thread/" + name }

// BlobPrefix is the prefix of the keys of a thread's blobs.
func BlobPrefix(name string) string { return "blob/" + name + "/" }

// incarnationSize is the length of an incarnation without a mark, and ownerSize
// that of the owner in it.
const incarnationSize, ownerSize = 40, 8

// newIncarnation returns a random name part that sorts by time and ends with
// owner, which is an ownerPart with a mark in front of it or none.
func newIncarnation(now time.Time, owner string) string {
	var b [20]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMicro())<<8)
	rand.Read(b[7:])
	return Base32.EncodeToString(b[:]) + owner
}

// ownerPart returns the end of the names of a user's threads: 8 characters by
// which package due tells owners apart.
func (r *Tenant) ownerPart(user string) string {
	return Base32.EncodeToString(r.All.Hash("owner", r.Name, user)[:5])
}

// NewName returns a name for a new thread of a user.
func (r *Tenant) NewName(now time.Time, mark, user string) string {
	return r.Part + "." + newIncarnation(now, mark+r.ownerPart(user))
}

// NewRunID returns a random id for a run, a worker or a thread.
func NewRunID() string {
	var b [15]byte
	rand.Read(b[:])
	return Base32.EncodeToString(b[:])
}

// Secret returns the random bytes in a cell of the store, which it creates if
// there is none.
func Secret(ctx context.Context, s store.Store, key string, size int) ([]byte, error) {
	for {
		cell, err := s.Get(ctx, key)
		switch {
		case err == nil && len(cell.Value) == size:
			return cell.Value, nil
		case err == nil:
			return nil, fmt.Errorf("%w: cell %q has %d bytes", fault.ErrCorrupt, key, len(cell.Value))
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
		fresh := make([]byte, size)
		rand.Read(fresh)
		if _, err := s.Put(ctx, key, fresh, ""); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// Hash returns a keyed hash of texts, which it joins unambiguously.
func (c *Threads) Hash(texts ...string) []byte {
	h := hmac.New(sha256.New, c.salt)
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return h.Sum(nil)
}

func (c *Threads) tenantPart(tenant string) string {
	return Base32.EncodeToString(c.Hash("tenant", tenant)[:10])
}

// IDKey is the key of the cell that maps a thread id to the thread's name.
func (r *Tenant) IDKey(id string) string {
	return "id/" + Base32.EncodeToString(r.All.Hash("thread", r.Name, id)[:20])
}

// Find returns the name of the thread with an id.
func (r *Tenant) Find(ctx context.Context, id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	cell, err := r.All.Store.Get(ctx, r.IDKey(id))
	name := string(cell.Value)
	if errors.Is(err, store.ErrCorrupt) {
		name, err = r.MendID(ctx, id, err)
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	if err == nil {
		name, err = r.led(ctx, id, name)
	}
	if err != nil {
		return "", err
	}
	reached, err := r.Reaches(ctx, name)
	if err == nil && !reached {
		err = fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	return name, err
}

// CheckID returns an error if id cannot be the id of a thread.
func CheckID(id string) error {
	if id == "" || len(id) > 200 || strings.ToValidUTF8(id, "") != id || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%w: a thread id has 1 to 200 bytes of printable text, not %.40q", fault.ErrInvalid, id)
	}
	return nil
}

// CheckNewID returns an error if id has invisible characters, see strict.Seen, or if
// no web address can name it, unless a thread with that id exists.
func (r *Tenant) CheckNewID(ctx context.Context, id string) error {
	if strict.Seen(id) && !isDots(id) {
		return nil
	}
	_, err := r.Find(ctx, id)
	if errors.Is(err, fault.ErrNoThread) {
		if isDots(id) {
			return fmt.Errorf("%w: the id of a new thread must not be %q, which no web address can name", fault.ErrInvalid, id)
		}
		return fmt.Errorf("%w: the id of a new thread must not contain control or invisible characters, as %.60q does", fault.ErrInvalid, id)
	}
	return err
}

// isDots reports whether browsers take something for the folder it stands in, even if
// it is escaped.
func isDots(name string) bool { return name == "." || name == ".." }

// CheckNewUser returns an error if a user cannot own a new thread.
func CheckNewUser(user string) error {
	if isDots(user) {
		return fmt.Errorf("%w: the user of a new thread must not be %q, which no web address can name", fault.ErrInvalid, user)
	}
	if !strict.Seen(user) {
		return fmt.Errorf("%w: the user of a new thread must not contain control or invisible characters, as %.60q does", fault.ErrInvalid, user)
	}
	return nil
}

// CheckKey returns an error if key cannot be a key of the state.
func CheckKey(key string) error {
	if key == "" || len(key) > 500 || !utf8.ValidString(key) {
		return fmt.Errorf("%w: the state key %.40q is not 1 to 500 bytes of UTF-8", fault.ErrName, key)
	}
	return nil
}

// ChildRunID returns the id of the run that a Spawn queues on a child's thread.
func (c *Threads) ChildRunID(child string) string {
	return Base32.EncodeToString(c.Hash("run of child", child)[:15])
}

// NewOwner returns the owner of a new thread for which the caller has named one,
// or "" for none.
func (r *Tenant) NewOwner(named string) (string, error) {
	switch {
	case r.Owner == nil || named == *r.Owner:
		return named, nil
	case named == "":
		return *r.Owner, nil
	}
	return "", fmt.Errorf("%w: %q cannot create a thread for %q", fault.ErrInvalid, *r.Owner, named)
}

// IDForKey returns the thread id of an idempotency key. Equal keys of different
// users give different ids.
func (r *Tenant) IDForKey(kind, key string) string {
	texts := []string{kind, r.Name, key}
	if r.Owner != nil {
		texts = []string{kind + ", of a user", r.Name, *r.Owner, key}
	}
	return Base32.EncodeToString(r.All.Hash(texts...)[:15])
}

// Owns reports whether the runtime may reach a thread that was read. A thread
// without entries belongs to nobody yet, and may be reached.
func (r *Tenant) Owns(t *journal.Thread) bool {
	return r.Owner == nil || t.Seq == 0 || t.User == *r.Owner
}

// Reaches reports whether the runtime may reach the thread with a name. An erased
// thread belongs to nobody: only a runtime without an owner reaches it.
func (r *Tenant) Reaches(ctx context.Context, name string) (bool, error) {
	if r.Owner == nil {
		return true, nil
	}
	// A summary that was written from the thread answers in one read: the owner
	// never changes.
	if s, err := r.All.ReadSummary(ctx, name); err == nil && s.Seq > 0 && !s.Rough {
		return s.User == *r.Owner, nil
	}
	o, err := r.All.Read(ctx, name)
	switch {
	case IsGone(err): // one on its way to the archive belongs to whom it did
		return o != nil && o.Thread.Archived && r.Owns(o.Thread), nil
	case o == nil:
		return false, err
	}
	return r.Owns(o.Thread), nil
}

// UsedKey is the key of the cell that says that a thread with an id was erased,
// given the key of the id's own cell.
func (c *Threads) UsedKey(idCell string) string {
	return "used/" + Base32.EncodeToString(c.Hash("used", idCell)[:20])
}

// Tag returns a text that tells a thread from erased ones that had the same id, and
// from itself before the store was restored, "" if there is nothing to tell apart.
func (r *Tenant) Tag(ctx context.Context, name, thread string) (string, error) {
	if r.All.restored != "" {
		return Base32.EncodeToString(r.All.Hash("life", Self(name), r.All.restored)[:5]), nil
	}
	_, err := r.All.Store.Get(ctx, r.All.UsedKey(r.IDKey(thread)))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Base32.EncodeToString(r.All.Hash("life", Self(name))[:5]), nil
}
