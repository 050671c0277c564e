package perdure

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// A thread's name in the store is <tenant>.<incarnation>: a keyed hash of the
// tenant, and a random part that begins with the time of creation and ends with
// a keyed hash of the owner. The journal and the summary cell are called after
// it, so both sort by creation, and due work is kept by owner; a cell under a
// keyed hash of tenant and thread id leads to it. No user text is in any name.

var base32Lower = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

func journalOf(name string) string { return "thread/" + name }

func blobsOf(name string) string { return "blob/" + name + "/" }

// incarnationSize is the length of what newIncarnation returns,
// without a mark, and ownerSize that of the owner in it.
const incarnationSize, ownerSize = 40, 8

// newIncarnation returns a random name part that sorts by time and ends with
// the hash of an owner, see ownerPart.
func newIncarnation(now time.Time, owner string) string {
	var b [20]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMicro())<<8)
	rand.Read(b[7:])
	return base32Lower.EncodeToString(b[:]) + owner
}

// ownerPart is what the names of a user's threads end with: 8 characters, by
// which package due tells owners apart.
func (r *Runtime) ownerPart(user string) string {
	return base32Lower.EncodeToString(r.hash("owner", r.tenant, user)[:5])
}

// newName returns a name for a new thread of a user.
func (r *Runtime) newName(now time.Time, mark, user string) string {
	return r.part + "." + newIncarnation(now, mark+r.ownerPart(user))
}

func newRunID() string {
	var b [15]byte
	rand.Read(b[:])
	return base32Lower.EncodeToString(b[:])
}

// salt returns the key of the store's hashes, and makes it if it is new.
func salt(ctx context.Context, s store.Store) ([]byte, error) {
	const key = "perdure/salt"
	for {
		cell, err := s.Get(ctx, key)
		if err == nil && len(cell.Value) == sha256.Size {
			return cell.Value, nil
		}
		if err == nil {
			return nil, fmt.Errorf("%w: cell %q has %d bytes", fault.ErrCorrupt, key, len(cell.Value))
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		fresh := make([]byte, sha256.Size)
		rand.Read(fresh)
		if _, err := s.Put(ctx, key, fresh, ""); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// hash returns the keyed hash of texts, unambiguously joined.
func (c *core) hash(texts ...string) []byte {
	h := hmac.New(sha256.New, c.salt)
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return h.Sum(nil)
}

func (c *core) tenantPart(tenant string) string {
	return base32Lower.EncodeToString(c.hash("tenant", tenant)[:10])
}

// idCell is the key of the cell that leads from a thread id to its name.
func (r *Runtime) idCell(id string) string {
	return "id/" + base32Lower.EncodeToString(r.hash("thread", r.tenant, id)[:20])
}

// find returns the name of a thread.
func (r *Runtime) find(ctx context.Context, id string) (string, error) {
	if err := checkThreadID(id); err != nil {
		return "", err
	}
	cell, err := r.store.Get(ctx, r.idCell(id))
	name := string(cell.Value)
	if errors.Is(err, store.ErrCorrupt) {
		name, err = r.mendID(ctx, id, err)
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	if err != nil {
		return "", err
	}
	reached, err := r.reaches(ctx, name)
	if err == nil && !reached {
		err = fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	}
	return name, err
}

func checkThreadID(id string) error {
	if id == "" || len(id) > 200 || strings.ToValidUTF8(id, "") != id || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%w: a thread id has 1 to 200 bytes of printable text, not %.40q", fault.ErrInvalid, id)
	}
	return nil
}

// checkNewThreadID refuses the id of a new thread that is not seen as it is, see
// strict.Seen. Threads that have such an id keep it.
func (r *Runtime) checkNewThreadID(ctx context.Context, id string) error {
	if strict.Seen(id) {
		return nil
	}
	_, err := r.find(ctx, id)
	if errors.Is(err, fault.ErrNoThread) {
		return fmt.Errorf("%w: the id of a new thread has no control characters and none that cannot be seen, such as those in %.60q", fault.ErrInvalid, id)
	}
	return err
}

// value returns a value for an entry: small ones as they are, large ones as a
// blob that is written now.
func (p *pass) value(raw json.RawMessage) (journal.Value, error) {
	v, err := p.rt.value(p.io, p.name, raw)
	if err != nil {
		return v, p.lose(err)
	}
	return v, nil
}

func (c *core) value(ctx context.Context, name string, raw json.RawMessage) (journal.Value, error) {
	if len(raw) <= blob.Inline {
		return journal.Value{JSON: raw}, nil
	}
	return c.blob(ctx, name, raw)
}

func (c *core) blob(ctx context.Context, name string, raw json.RawMessage) (journal.Value, error) {
	ref, err := blob.Put(ctx, c.store, blobsOf(name), bytes.NewReader(raw))
	if err != nil {
		return journal.Value{}, fmt.Errorf("perdure: keeping a value of %d bytes: %w", len(raw), err)
	}
	return journal.Value{Blob: &ref}, nil
}

// load returns the JSON of a recorded value. A store that fails is no outcome
// of the code that wants to read: it is asked again for a while, and then the
// pass is lost. A value that is damaged or gone blocks the run.
func (p *pass) load(f *frame, v journal.Value) (json.RawMessage, error) {
	return p.patient(f, func() (json.RawMessage, error) { return p.rt.load(p.io, p.name, v) })
}

func (p *pass) patient(f *frame, read func() (json.RawMessage, error)) (json.RawMessage, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		raw, err := read()
		switch {
		case err == nil:
			return raw, nil
		case errors.Is(err, fault.ErrCorrupt), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
			return nil, p.block(f, unreadable+err.Error())
		case pause > p.rt.opts.Lease, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned):
			return nil, p.lose(err)
		}
		select {
		case <-p.ctx.Done():
			return nil, p.sealedErr()
		case <-time.After(pause):
		}
	}
}

// fit makes a body small enough for an entry.
func (p *pass) fit(b *journal.Body) error {
	if err := p.rt.fit(p.io, p.name, b); err != nil {
		return p.lose(err)
	}
	return nil
}

// fit makes a body small enough for an entry: values that are too large, and
// then the largest ones, become blobs.
func (c *core) fit(ctx context.Context, name string, b *journal.Body) error {
	const room = 160 << 10
	values := []*journal.Value{&b.Value}
	for i := range b.State {
		if b.State[i].Set != nil {
			values = append(values, b.State[i].Set)
		}
		for j := range b.State[i].Append {
			values = append(values, &b.State[i].Append[j])
		}
	}
	for {
		total := 0
		var largest *journal.Value
		for _, v := range values {
			total += len(v.JSON)
			if largest == nil || len(v.JSON) > len(largest.JSON) {
				largest = v
			}
		}
		if len(largest.JSON) <= blob.Inline && (total <= room || len(largest.JSON) < 256) {
			return nil
		}
		kept, err := c.blob(ctx, name, largest.JSON)
		if err != nil {
			return err
		}
		*largest = kept
	}
}
