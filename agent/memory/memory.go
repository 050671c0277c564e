// Package memory keeps values that outlive threads, such as what agents know
// about a user, under a namespace and a key. agent.MemoryTools lets a model use
// it. The package may import perdure, store and internal/shelf; package agent
// builds on it.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// Errors of memory. They also match when read back from the journal.
var (
	// ErrNotFound: there is no value under the key, or it has expired.
	ErrNotFound = perdure.Coded("agent-no-memory", errors.New("agent: nothing is remembered there"))
	// ErrConflict: the value is not the expected one, see [ConflictError].
	ErrConflict = perdure.Coded("agent-memory-conflict", errors.New("agent: the memory was changed"))
	// ErrNamespace: a namespace or key is not valid, or a run used a namespace that is
	// not its owner's.
	ErrNamespace = perdure.Coded("agent-namespace", errors.New("agent: bad namespace"))
)

// ConflictError reports that a value was not the one that a Put or Delete
// expected. Nothing was written. It matches [ErrConflict].
type ConflictError struct {
	Namespace Namespace
	Key       string
	Version   string // of the existing value; "" if there is none
}

// Error says what was found.
func (e *ConflictError) Error() string {
	now := "nothing is there"
	if e.Version != "" {
		now = fmt.Sprintf("it has the version %q", e.Version)
	}
	return fmt.Sprintf("%v: %q in %q: %s", ErrConflict, e.Key, []string(e.Namespace), now)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Namespace says where in memory a value is: a list of up to 8 segments of any
// text, within the tenant. By convention it begins with the user, see [User].
type Namespace []string

// User returns the namespace of what is remembered about a user, or of a part of
// it, such as what one agent remembers. Threads without an owner share that of
// the user "".
func User(user string, part ...string) Namespace {
	return append(Namespace{"user", user}, part...)
}

// Memory holds values that outlive threads, each under a namespace and a key and with
// a version. They are not forked, rewound or erased with a thread: use [Memory.Clear]
// to erase them.
//
// A value can have up to 128 KiB of JSON. Names in the store contain no text of the
// value, its key or its namespace.
type Memory struct {
	shelf *shelf.Shelf
	home  Namespace // that it is confined to
	inRun bool
}

// Of returns the memory of a runtime's tenant, or of the user that the runtime is
// limited to ([perdure.Runtime.User]), for use outside runs. It also works in the leaf
// steps of a run, where it reaches every user, so a model must not choose the namespace
// there; see [Here].
func Of(rt *perdure.Runtime) *Memory {
	m := &Memory{shelf: shelf.Of(rt, shelf.Memory)}
	if user := m.shelf.User(); user != nil {
		m.home = User(*user)
	}
	return m
}

// Here returns the memory of the thread's owner, for use in the leaf steps of a
// run, such as the function of a tool. Namespaces other than the owner's are
// ErrNamespace, whatever the model says.
//
// Memory is outside the thread. A step that runs again after a crash reads what memory
// holds then, and puts again what it put before; with the same value and options, that
// changes nothing unless someone else has written in the meantime.
func Here(ctx context.Context) (*Memory, error) {
	place, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	s, err := shelf.Here(ctx, shelf.Memory)
	if err != nil {
		return nil, err
	}
	return &Memory{s, User(place.User), true}, nil
}

// Home returns the namespace that a memory is confined to: in a run, the
// owner's.
func (m *Memory) Home() Namespace { return slices.Clone(m.home) }

// Item is a value that is remembered.
type Item struct {
	Namespace Namespace       `json:"namespace"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	Version   string          `json:"version"`
	Created   time.Time       `json:"created"`
	Updated   time.Time       `json:"updated"`
	Expires   time.Time       `json:"expires,omitzero"`
	Cursor    string          `json:"cursor"` // for ListOptions.After
}

// Decode reads the value into what v points to.
func (i *Item) Decode(v any) error { return json.Unmarshal(i.Value, v) }

// PutOptions of [Memory.Put].
type PutOptions struct {
	Version string        // the version to replace; "" means any
	Create  bool          // fail if a value exists
	TTL     time.Duration // after which the value is forgotten; 0 means never
}

// enter checks that the memory may be used with this context, and returns the
// namespace if it lies in what the memory is confined to, which the empty one
// stands for.
func (m *Memory) enter(ctx context.Context, ns Namespace) (Namespace, error) {
	if m.inRun || shelf.InRun(ctx) {
		if err := engine.CheckLeaf(ctx, "memory"); err != nil {
			return ns, err
		}
	}
	if m.inRun {
		place, err := perdure.Here(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(User(place.User), m.home) {
			return nil, fmt.Errorf("%w: the memory is that of another thread's run", ErrNamespace)
		}
	}
	if len(ns) == 0 {
		return m.home, nil
	}
	if len(ns) < len(m.home) || !slices.Equal(ns[:len(m.home)], m.home) {
		return nil, fmt.Errorf("%w: %q is not in the owner's memory, %q", ErrNamespace, []string(ns), []string(m.home))
	}
	return ns, nil
}

// Put stores a value, anything that encodes as JSON, and returns its version.
func (m *Memory) Put(ctx context.Context, ns Namespace, key string, value any, o PutOptions) (string, error) {
	ns, err := m.enter(ctx, ns)
	if err != nil {
		return "", err
	}
	raw, err := strict.Encode(value)
	if err != nil {
		return "", fmt.Errorf("agent: remembering %q: %w: %w", key, perdure.ErrNotJSON, err)
	}
	put := shelf.PutOptions{Version: store.Version(o.Version), Create: o.Create, TTL: o.TTL, Once: perdure.Key(ctx)}
	item, err := m.shelf.Put(ctx, ns, key, raw, put)
	if err != nil {
		return "", shelfError(ns, key, err)
	}
	if m.inRun {
		// After the write: if the user was not being erased yet, the erase finds it.
		if gone, err := engine.IsErasedWithUser(ctx); err != nil {
			return "", err
		} else if gone {
			err := m.shelf.Delete(context.WithoutCancel(ctx), ns, key, item.Version)
			return "", errors.Join(fmt.Errorf("agent: remembering %q: %w, with everything of its user", key, perdure.ErrErased), shelfError(ns, key, err))
		}
	}
	return string(item.Version), nil
}

// Get returns a value, or ErrNotFound.
func (m *Memory) Get(ctx context.Context, ns Namespace, key string) (*Item, error) {
	ns, err := m.enter(ctx, ns)
	if err != nil {
		return nil, err
	}
	item, err := m.shelf.Get(ctx, ns, key)
	if err != nil {
		return nil, shelfError(ns, key, err)
	}
	return newItem(item), nil
}

// Delete removes a value if it has the given version, or if version is "". Deleting a
// missing value is not an error.
func (m *Memory) Delete(ctx context.Context, ns Namespace, key, version string) error {
	ns, err := m.enter(ctx, ns)
	if err != nil {
		return err
	}
	return shelfError(ns, key, m.shelf.Delete(ctx, ns, key, store.Version(version)))
}

// Clear removes everything in a namespace and below it.
func (m *Memory) Clear(ctx context.Context, ns Namespace) error {
	ns, err := m.enter(ctx, ns)
	if err != nil {
		return err
	}
	return m.shelf.Clear(ctx, ns)
}

func newItem(i *shelf.Item) *Item {
	return &Item{Namespace: i.Namespace, Key: i.Key, Value: i.Value, Version: string(i.Version),
		Created: i.Created, Updated: i.Updated, Expires: i.Expires, Cursor: i.Place}
}

func shelfError(ns Namespace, key string, err error) error {
	conflict, ok := errors.AsType[*shelf.ConflictError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return &ConflictError{ns, key, string(conflict.Now)}
	case errors.Is(err, shelf.ErrNotFound):
		return fmt.Errorf("%w: %q in %q", ErrNotFound, key, []string(ns))
	case errors.Is(err, shelf.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrNamespace, err)
	case errors.Is(err, shelf.ErrTooLarge):
		return fmt.Errorf("%w: %w", perdure.ErrTooLarge, err)
	}
	return fmt.Errorf("agent: memory %q: %w", key, err)
}
