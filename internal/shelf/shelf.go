// Package shelf keeps what outlives threads: small versioned values under a
// namespace and a key, in the cells of a runtime's store. Memory, rules and
// credentials are on shelves of different kinds, and tenants on shelves of their
// own; none reaches another. It may import store,
// internal/threads and internal/engine.
//
// # Names
//
// A namespace is a list of segments, a key one text; both may hold anything
// that is UTF-8. No such text is in the name of a cell, which is
//
//	shelf/<kind>/<tenant>/<segment>.<segment>.~<key>
//
// where each part is a keyed hash of the text and everything before it. So the
// values below a namespace are adjacent and can be listed, ".." and "/" mean
// nothing, and the same text in two places has two names. What follows the tenant
// is a value's place. The record in the cell has the real texts, and one that does
// not fit its place is refused.
//
// # Time
//
// A value may have a time to live. Once that is over, nobody sees the value, and
// whoever comes across its cell removes it. The clock is that of the machine that
// looks.
package shelf

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Kind says whose values a shelf holds. Values of one kind cannot be reached
// through a shelf of another.
type Kind string

// The kinds.
const (
	Memory     Kind = "memory"
	Rule       Kind = "rule"
	Credential Kind = "credential"
)

// The limits.
const (
	MaxSegments = 8         // of a namespace
	MaxText     = 512       // bytes of a segment or key
	MaxValue    = 128 << 10 // bytes of a value
)

// What can go wrong, besides what the store says.
var (
	ErrNotFound = errors.New("shelf: not found")
	ErrInvalid  = errors.New("shelf: invalid")
	ErrTooLarge = errors.New("shelf: too large")
	ErrConflict = errors.New("shelf: conflict")
)

// ConflictError says that a value is not as its writer expected it. It matches
// ErrConflict.
type ConflictError struct {
	Now store.Version // of the value that is there; "": there is none
}

// Error says what was found.
func (e *ConflictError) Error() string {
	if e.Now == "" {
		return ErrConflict.Error() + ": the value is gone"
	}
	return fmt.Sprintf("%v: the value has the version %q", ErrConflict, e.Now)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Shelf is the values of one kind and tenant.
type Shelf struct {
	host *Host
	kind Kind
	root string // what the names of its cells begin with
}

// New returns a shelf on the store of a host.
func New(h *Host, kind Kind) *Shelf {
	s := &Shelf{host: h, kind: kind}
	s.root = "shelf/" + string(kind) + "/" + s.hash("tenant") + "/"
	return s
}

// Store returns the store that the shelf is in.
func (s *Shelf) Store() store.Store { return s.host.Store }

// Log returns the logger for damage that no caller learns of.
func (s *Shelf) Log() *slog.Logger {
	if s.host.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.host.Log
}

// Tenant returns the tenant that the shelf belongs to.
func (s *Shelf) Tenant() string { return s.host.Tenant }

var base32Lower = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// hash returns 24 characters.
func (s *Shelf) hash(what string, texts ...string) string {
	all := append([]string{"shelf", string(s.kind), s.host.Tenant, what}, texts...)
	return base32Lower.EncodeToString(s.host.Hash(all...)[:15])
}

// prefix returns what the places of all values below a namespace begin with.
func (s *Shelf) prefix(ns []string) string {
	var b strings.Builder
	for i := range ns {
		b.WriteString(s.hash("segment", ns[:i+1]...) + ".")
	}
	return b.String()
}

// Place returns the place of a value: an id that holds none of its texts.
func (s *Shelf) Place(ns []string, key string) string {
	return s.prefix(ns) + "~" + s.hash("key", append(slices.Clone(ns), key)...)
}

func checkPlace(place string) error {
	ok := len(place) <= (MaxSegments+1)*25 && strings.Contains(place, "~")
	for _, c := range []byte(place) {
		ok = ok && ('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '~')
	}
	if !ok {
		return fmt.Errorf("%w: there is no place %.80q", ErrNotFound, place)
	}
	return nil
}

// Check returns ErrInvalid unless a namespace and key may name a value.
func Check(ns []string, key string) error {
	if key == "" || len(key) > MaxText || !utf8.ValidString(key) {
		return fmt.Errorf("%w: the key %.40q is not 1 to %d bytes of UTF-8", ErrInvalid, key, MaxText)
	}
	return checkNamespace(ns)
}

func checkNamespace(ns []string) error {
	if len(ns) > MaxSegments {
		return fmt.Errorf("%w: a namespace has at most %d segments, not %d", ErrInvalid, MaxSegments, len(ns))
	}
	for _, text := range ns {
		if len(text) > MaxText || !utf8.ValidString(text) {
			return fmt.Errorf("%w: the segment %.40q is not at most %d bytes of UTF-8", ErrInvalid, text, MaxText)
		}
	}
	return nil
}

// Item is a value on a shelf.
type Item struct {
	Namespace []string
	Key       string
	Value     json.RawMessage
	Version   store.Version
	Place     string
	Created   time.Time // when there was none before
	Updated   time.Time
	Expires   time.Time // zero: never
}

// Get returns a value, or ErrNotFound.
func (s *Shelf) Get(ctx context.Context, ns []string, key string) (*Item, error) {
	if err := Check(ns, key); err != nil {
		return nil, err
	}
	return s.At(ctx, s.Place(ns, key))
}

// At returns the value at a place, or ErrNotFound.
func (s *Shelf) At(ctx context.Context, place string) (*Item, error) {
	if err := checkPlace(place); err != nil {
		return nil, err
	}
	cell, err := s.host.Store.Get(ctx, s.root+place)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	item, _, err := s.parse(cell)
	if err != nil {
		return nil, err
	}
	if item.expired() {
		s.sweep(ctx, cell)
		return nil, ErrNotFound
	}
	return item, nil
}

func (i *Item) expired() bool { return !i.Expires.IsZero() && !time.Now().Before(i.Expires) }

// sweep removes a cell whose time is over. If that fails, the next reader tries
// again.
func (s *Shelf) sweep(ctx context.Context, cell store.Cell) {
	_ = s.host.Store.Delete(ctx, cell.Key, cell.Version)
}

// Host is a store as one tenant's threads see it.
type Host struct {
	Store  store.Store
	Tenant string
	User   *string                      // whose threads the runtime is limited to; nil: all
	Hash   func(texts ...string) []byte // keyed, so that names of cells tell nothing
	Log    *slog.Logger

	CheckMoved func(context.Context) error // refuses writes of a store that was migrated; nil: there are none
	CheckKept  func(context.Context) error // fails after a write that a migration may have missed; nil: as above
}

// hostOf returns the host of a tenant's threads.
func hostOf(t *threads.Tenant) *Host {
	return &Host{Store: t.All.Store, Tenant: t.Name, User: t.Owner, Hash: t.All.Hash, Log: t.All.Log, CheckMoved: t.All.CheckMoved, CheckKept: t.All.CheckKept}
}

// Of returns the shelf of the tenant of a *perdure.Runtime.
func Of(runtime any, kind Kind) *Shelf { return New(hostOf(threads.Behind(runtime)), kind) }

// Here returns the shelf of the tenant of the run that a context belongs to.
func Here(ctx context.Context, kind Kind) (*Shelf, error) {
	t, err := engine.TenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return New(hostOf(t), kind), nil
}

// InRun reports whether a context belongs to a run.
func InRun(ctx context.Context) bool {
	_, err := engine.TenantOf(ctx)
	return err == nil
}

// User returns the user whose threads the runtime is limited to, nil for all.
func (s *Shelf) User() *string { return s.host.User }

// record is what a cell holds. Write names the write that made it, so that who
// does not know what became of a write recognises it.
type record struct {
	Namespace []string        `json:"ns"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	Created   int64           `json:"created"` // microseconds since 1970, as all times here
	Updated   int64           `json:"updated"`
	Expires   int64           `json:"expires,omitempty"`
	Write     string          `json:"write"`
}

func (r *record) encode() ([]byte, error) {
	raw, err := strict.Marshal(r) // escapes for HTML would let values grow
	if err != nil {
		return nil, fmt.Errorf("%w: the value is not JSON: %w", ErrInvalid, err)
	}
	if len(raw) > store.MaxEntry {
		return nil, fmt.Errorf("%w: the record has %d bytes", ErrTooLarge, len(raw))
	}
	return raw, nil
}

// parse reads a cell, and refuses one that belongs to another place.
func (s *Shelf) parse(cell store.Cell) (*Item, *record, error) {
	var r record
	if err := json.Unmarshal(cell.Value, &r); err != nil {
		return nil, nil, &store.CorruptError{Cell: cell.Key, Reason: "it is no record of a shelf"}
	}
	place := strings.TrimPrefix(cell.Key, s.root)
	if Check(r.Namespace, r.Key) != nil || s.Place(r.Namespace, r.Key) != place {
		return nil, nil, &store.CorruptError{Cell: cell.Key, Reason: "it holds the record of another place"}
	}
	return &Item{
		Namespace: r.Namespace, Key: r.Key, Value: r.Value, Version: cell.Version, Place: place,
		Created: stamp(r.Created), Updated: stamp(r.Updated), Expires: stamp(r.Expires),
	}, &r, nil
}

func stamp(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
