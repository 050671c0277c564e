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

// Base32 writes what names and ids are made of: in lower case, so that it sorts.
var Base32 = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// JournalKey is the key of a thread's journal, and of the cell of its summary.
func JournalKey(name string) string { return "thread/" + name }

// BlobPrefix is what the keys of a thread's blobs begin with.
func BlobPrefix(name string) string { return "blob/" + name + "/" }

// incarnationSize is the length of what newIncarnation returns,
// without a mark, and ownerSize that of the owner in it.
const incarnationSize, ownerSize = 40, 8

// newIncarnation returns a random name part that sorts by time and ends with
// the hash of an owner, see ownerPart.
func newIncarnation(now time.Time, owner string) string {
	var b [20]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMicro())<<8)
	rand.Read(b[7:])
	return Base32.EncodeToString(b[:]) + owner
}

// ownerPart is what the names of a user's threads end with: 8 characters, by
// which package due tells owners apart.
func (r *Tenant) ownerPart(user string) string {
	return Base32.EncodeToString(r.All.Hash("owner", r.Name, user)[:5])
}

// NewName returns a name for a new thread of a user.
func (r *Tenant) NewName(now time.Time, mark, user string) string {
	return r.Part + "." + newIncarnation(now, mark+r.ownerPart(user))
}

// NewRunID returns a random id, of a run, a worker or a thread.
func NewRunID() string {
	var b [15]byte
	rand.Read(b[:])
	return Base32.EncodeToString(b[:])
}

// Secret returns the random bytes in a cell of the store, and makes them if need be.
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

// Hash returns the keyed hash of texts, unambiguously joined.
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

// IDKey is the key of the cell that leads from a thread id to its name.
func (r *Tenant) IDKey(id string) string {
	return "id/" + Base32.EncodeToString(r.All.Hash("thread", r.Name, id)[:20])
}

// Find returns the name of a thread.
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
	if err != nil {
		return "", err
	}
	reached, err := r.Reaches(ctx, name)
	if err == nil && !reached {
		err = fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	return name, err
}

// CheckID refuses what cannot be the id of a thread.
func CheckID(id string) error {
	if id == "" || len(id) > 200 || strings.ToValidUTF8(id, "") != id || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%w: a thread id has 1 to 200 bytes of printable text, not %.40q", fault.ErrInvalid, id)
	}
	return nil
}

// CheckNewID refuses the id of a new thread that is not seen as it is, see
// strict.Seen. Threads that have such an id keep it.
func (r *Tenant) CheckNewID(ctx context.Context, id string) error {
	if strict.Seen(id) {
		return nil
	}
	_, err := r.Find(ctx, id)
	if errors.Is(err, fault.ErrNoThread) {
		return fmt.Errorf("%w: the id of a new thread must not contain control or invisible characters, as %.60q does", fault.ErrInvalid, id)
	}
	return err
}

// A thread's name in the store is <tenant>.<incarnation>: a keyed hash of the
// tenant, and a random part that begins with the time of creation and ends with
// a keyed hash of the owner. The journal and the summary cell are called after
// it, so both sort by creation, and due work is kept by owner; a cell under a
// keyed hash of tenant and thread id leads to it. No user text is in any name.

// CheckKey refuses what cannot be a key of the state.
func CheckKey(key string) error {
	if key == "" || len(key) > 500 || !utf8.ValidString(key) {
		return fmt.Errorf("%w: the state key %.40q is not 1 to 500 bytes of UTF-8", fault.ErrName, key)
	}
	return nil
}

// ChildRunID returns the id of the run that a Spawn queued on a child's thread.
func (c *Threads) ChildRunID(child string) string {
	return Base32.EncodeToString(c.Hash("run of child", child)[:15])
}

// NewOwner returns who owns what is made, given who is named.
func (r *Tenant) NewOwner(named string) (string, error) {
	switch {
	case r.Owner == nil || named == *r.Owner:
		return named, nil
	case named == "":
		return *r.Owner, nil
	}
	return "", fmt.Errorf("%w: %q cannot create a thread for %q", fault.ErrInvalid, *r.Owner, named)
}

// IDForKey returns the thread id of an idempotency key. Keys of users do not meet.
func (r *Tenant) IDForKey(kind, key string) string {
	texts := []string{kind, r.Name, key}
	if r.Owner != nil {
		texts = []string{kind + ", of a user", r.Name, *r.Owner, key}
	}
	return Base32.EncodeToString(r.All.Hash(texts...)[:15])
}

// Owns reports whether a thread as it was read is one that the runtime reaches.
// One without entries is nobody's yet.
func (r *Tenant) Owns(t *journal.Thread) bool {
	return r.Owner == nil || t.Seq == 0 || t.User == *r.Owner
}

// Reaches reports whether the thread with a name is one that the runtime
// reaches. What was erased is nobody's.
func (r *Tenant) Reaches(ctx context.Context, name string) (bool, error) {
	if r.Owner == nil {
		return true, nil
	}
	// Once it was written from the thread the summary says so in one read: the
	// owner never changes.
	if s, err := r.All.ReadSummary(ctx, name); err == nil && s.Seq > 0 && !s.Rough {
		return s.User == *r.Owner, nil
	}
	o, err := r.All.Read(ctx, name)
	switch {
	case IsGone(err):
		return false, nil
	case o == nil:
		return false, err
	}
	return r.Owns(o.Thread), nil
}

// UsedKey is the key of the cell which says that the thread of an id was erased.
func (c *Threads) UsedKey(idCell string) string {
	return "used/" + Base32.EncodeToString(c.Hash("used", idCell)[:20])
}

// Tag returns what tells a thread from an erased one that had its id, "" for the first.
func (r *Tenant) Tag(ctx context.Context, name, thread string) (string, error) {
	_, err := r.All.Store.Get(ctx, r.All.UsedKey(r.IDKey(thread)))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Base32.EncodeToString(r.All.Hash("life", name)[:5]), nil
}
