package threads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Mine finds what a tenant's store has of one user. It knows the user by keyed hashes
// only, so that it can be kept in the store while the user is erased.
type Mine struct {
	Hash  string `json:"hash"`  // of the user
	Part  string `json:"part"`  // the end of the names of their threads; others may share it
	Facet string `json:"facet"` // of their threads in the index
}

// Of returns how to find what there is of a user.
func (r *Tenant) Of(user string) Mine {
	return Mine{Hash: r.UserHash(user), Part: r.ownerPart(user), Facet: r.All.facet(r.Part, "user", user)}
}

// UserHash returns a keyed hash of a user of the tenant.
func (r *Tenant) UserHash(user string) string {
	return Base32.EncodeToString(r.All.Hash("a user", r.Name, user)[:20])
}

// Is reports whether a user is the one.
func (m Mine) Is(r *Tenant, user string) bool { return user != "" && r.UserHash(user) == m.Hash }

// Names returns the names of all threads of a user: those in the index, those whose
// start or erase was interrupted, and, by their first names, those that are or were
// archived.
func (r *Tenant) Names(ctx context.Context, m Mine) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	add := func(name string) error {
		if name == "" || seen[name] {
			return nil
		}
		seen[name] = true
		mine, err := r.IsOf(ctx, m, name)
		if mine {
			names = append(names, name)
		}
		return err
	}
	own := func(name string) error { // others go by their owner, which the name tells almost always
		if !strings.HasSuffix(name, m.Part) {
			return nil
		}
		return add(name)
	}
	if err := r.All.completeIndex(ctx); err != nil {
		return nil, err
	}
	for _, walk := range []struct {
		prefix string
		take   func(key string) error
	}{
		{m.Facet, func(key string) error { name, _ := parseIndexKey(key); return add(name) }},
		{r.All.facet(r.Part, "all"), func(key string) error { name, _ := parseIndexKey(key); return own(name) }},
		{GateKey(r.Part) + ".", func(key string) error { return own(strings.TrimPrefix(key, GateKey(""))) }},
		{ArchivedKey(r.Part) + ".", func(key string) error { return own(strings.TrimPrefix(key, ArchivedPrefix)) }},
	} {
		keys, err := r.All.keys(ctx, walk.prefix)
		for _, key := range keys {
			if err == nil {
				err = walk.take(key)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	prefix := JournalKey(r.Part) + "."
	for key, err := range r.All.Store.Journals(ctx, prefix) {
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			return nil, err
		}
		if err != nil || !strings.HasPrefix(key, prefix) {
			break
		}
		if err := own(strings.TrimPrefix(key, JournalKey(""))); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Unlist removes what leads from a user to a thread that is erased. The summary tells
// of that cell, but a start that died may have written the cell and no summary.
func (r *Tenant) Unlist(ctx context.Context, m Mine, name string) error {
	_, incarnation, _ := strings.Cut(name, ".")
	return r.All.unindex(ctx, []string{m.Facet + newestFirst(incarnation)})
}

// keys returns the keys of all intact cells with a prefix.
func (c *Threads) keys(ctx context.Context, prefix string) (keys []string, err error) {
	for cell, err := range c.Store.List(ctx, prefix, "") {
		if errors.Is(err, store.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, cell.Key)
	}
	return keys, nil
}

// IsOf reports whether a thread belongs to a user. One that has not begun, or of which
// only the rest of an erase is left, belongs to whom its name says.
func (r *Tenant) IsOf(ctx context.Context, m Mine, name string) (bool, error) {
	a, _, err := r.All.ReadArchived(ctx, name)
	if err != nil && !IsDamage(err) {
		return false, err
	}
	if a != nil && a.User != "" {
		return m.Is(r, a.User), nil
	}
	if s, err := r.All.ReadSummary(ctx, name); err == nil && s.User != "" {
		return m.Is(r, s.User), nil
	}
	o, err := r.All.Read(ctx, name)
	switch {
	case err != nil && !IsGone(err) && !errors.Is(err, fault.ErrCorrupt):
		return false, err
	case o != nil && o.Thread.ID != "":
		return m.Is(r, o.Thread.User), nil
	}
	return strings.HasSuffix(name, m.Part), nil
}

// While everything of a user is erased, a cell says so: ErasingUser, the tenant, and a
// keyed hash of the user. What was erased is noted in cells below ErasedUser, the tenant
// and the user: the kind and a name. See internal/erasure.
const (
	ErasingUser = "erasing/"
	ErasedUser  = "erased/"
)

// The kinds of threads that are noted.
const (
	NotedThread   = "threads"
	NotedArchived = "archived"
)

// NoteErased notes that a thread of a user is about to be erased, if everything of the
// user is. It can be repeated. Head is the hash of the thread's last entry, "" if nobody
// can tell.
func (r *Tenant) NoteErased(ctx context.Context, user, kind, self, head string) error {
	if user == "" {
		return nil
	}
	of := r.Part + "/" + r.UserHash(user)
	_, err := r.All.Store.Get(ctx, ErasingUser+of)
	if err == nil {
		_, err = r.All.Ensure(ctx, ErasedUser+of+"/"+kind+"/"+self, []byte(ReceiptDigest(head)))
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// IsErasedWithUser reports whether a thread of a user, made at a time, is gone because
// everything of the user was or is being erased. What the user is given by code that
// still runs for the thread has to go again: a caller that has just written it and is
// told false knows that the erase will find it.
func (r *Tenant) IsErasedWithUser(ctx context.Context, name, user string, made int64) (bool, error) {
	if user == "" {
		return false, nil
	}
	err := r.All.CheckErased(ctx, name)
	gone := errors.Is(err, fault.ErrErased)
	if err == nil {
		gone, err = r.All.IsDropped(ctx, name)
	}
	if !gone {
		return false, err
	}
	if a, _, err := r.All.ReadArchived(ctx, name); err != nil || a != nil && a.State != Erasing {
		return false, err // it is in the archive, or was restored
	}
	of := r.Part + "/" + r.UserHash(user)
	_, err = r.All.Store.Get(ctx, ErasingUser+of)
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}
	cell, err := r.All.Store.Get(ctx, ErasedUser+of)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = nil // only the thread was erased
		}
		return false, err
	}
	var last struct {
		Ended int64 `json:"ended"`
	}
	return json.Unmarshal(cell.Value, &last) == nil && made <= last.Ended, nil
}

// ReceiptDigest returns what a receipt says about a thread: a hash of the hash of its
// last entry, in hex; "-" for a thread that is damaged.
func ReceiptDigest(head string) string {
	if head == "" {
		return "-"
	}
	sum := sha256.Sum256([]byte("perdure receipt " + head))
	return hex.EncodeToString(sum[:])
}
