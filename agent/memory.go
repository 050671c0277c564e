package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// What can go wrong with memory. They match also when they are read back from
// the journal.
var (
	// ErrNoMemory: nothing is kept under that key, or its time is over.
	ErrNoMemory = perdure.Coded("agent-no-memory", errors.New("agent: nothing is remembered there"))
	// ErrMemoryConflict: what is kept is not what was expected, see
	// [MemoryConflict].
	ErrMemoryConflict = perdure.Coded("agent-memory-conflict", errors.New("agent: the memory was changed"))
	// ErrNamespace: a run reaches for a namespace that is not its owner's, or
	// a namespace or key cannot be one.
	ErrNamespace = perdure.Coded("agent-namespace", errors.New("agent: bad namespace"))
)

// MemoryConflict says that a value was not as a Put or Delete expected. Nothing
// was written. It matches [ErrMemoryConflict].
type MemoryConflict struct {
	Namespace Namespace
	Key       string
	Version   string // of what is there; "": there is nothing
}

// Error says what was found.
func (e *MemoryConflict) Error() string {
	now := "nothing is there"
	if e.Version != "" {
		now = fmt.Sprintf("it has the version %q", e.Version)
	}
	return fmt.Sprintf("%v: %q in %q: %s", ErrMemoryConflict, e.Key, []string(e.Namespace), now)
}

// Unwrap makes errors.Is(err, ErrMemoryConflict) true.
func (e *MemoryConflict) Unwrap() error { return ErrMemoryConflict }

// Namespace says where in memory a value is: a list of up to 8 segments, of any
// text, within the tenant. By convention it begins with the user, see
// [UserMemory].
type Namespace []string

// UserMemory returns the namespace of what is remembered about a user, or of a
// part of it, such as what one agent remembers. Threads without an owner share
// that of the user "".
func UserMemory(user string, part ...string) Namespace {
	return append(Namespace{"user", user}, part...)
}

// Memory is what is remembered beyond threads: values under a namespace and a
// key, each with a version. It is neither forked nor rewound with a thread, and
// not erased with it: [Memory.Clear] does that.
//
// A value has at most 128 KiB of JSON. No text of it, of its key or of its
// namespace stands in a name in the store.
type Memory struct {
	shelf *shelf.Shelf
	home  Namespace // what it is confined to
	here  bool      // in a run
}

// MemoryOf returns the memory of a runtime's tenant, or of the user that the
// runtime is limited to ([perdure.Runtime.User]), for use outside of runs. In
// the leaf steps of a run it reaches every user too, so what a model says must
// not choose the namespace there; see [MemoryHere].
func MemoryOf(rt *perdure.Runtime) *Memory {
	h := host.FromRuntime(rt)
	m := &Memory{shelf: shelf.New(h, shelf.Memory)}
	if h != nil && h.User != nil {
		m.home = UserMemory(*h.User)
	}
	return m
}

// MemoryHere returns the memory of the thread's owner, for use in a run: in
// leaf steps, such as the function of a tool. Other namespaces than the
// owner's are ErrNamespace, whatever the model says.
//
// Memory is outside of the thread. A step that is run again, after a crash,
// reads what is there then, and puts again what it put before; with the same
// value and options that changes nothing if nobody else has written meanwhile.
func MemoryHere(ctx context.Context) (*Memory, error) {
	place, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	h, err := host.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	return &Memory{shelf.New(h, shelf.Memory), UserMemory(place.User), true}, nil
}

// Home returns the namespace that a memory is confined to: that of the owner,
// in a run.
func (m *Memory) Home() Namespace { return slices.Clone(m.home) }

// MemoryItem is a value that is remembered.
type MemoryItem struct {
	Namespace Namespace       `json:"namespace"`
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value"`
	Version   string          `json:"version"`
	Created   time.Time       `json:"created"`
	Updated   time.Time       `json:"updated"`
	Expires   time.Time       `json:"expires,omitzero"`
	Cursor    string          `json:"cursor"` // for MemoryList.After
}

// Decode reads the value into what v points to.
func (i *MemoryItem) Decode(v any) error { return json.Unmarshal(i.Value, v) }

// MemoryOptions of a Put.
type MemoryOptions struct {
	Version string        // that is replaced; "": whatever is there
	Create  bool          // nothing may be there
	TTL     time.Duration // after which it is forgotten; 0: never
}

// check checks a namespace and that the memory may be used by this context. In
// a run the empty namespace is the owner's.
func (m *Memory) check(ctx context.Context, ns Namespace) (Namespace, error) {
	if !m.here && !inRun(ctx) {
		return m.within(ns)
	}
	if err := host.Leaf(ctx, "memory"); err != nil {
		return ns, err
	}
	if !m.here {
		return m.within(ns)
	}
	place, err := perdure.Here(ctx)
	if err != nil {
		return nil, err
	}
	if home := UserMemory(place.User); !slices.Equal(home, m.home) {
		return nil, fmt.Errorf("%w: the memory is that of another thread's run", ErrNamespace)
	}
	return m.within(ns)
}

// within returns a namespace if it is in what the memory is confined to, which
// the empty one stands for.
func (m *Memory) within(ns Namespace) (Namespace, error) {
	if len(ns) == 0 {
		return m.home, nil
	}
	if len(ns) < len(m.home) || !slices.Equal(ns[:len(m.home)], m.home) {
		return nil, fmt.Errorf("%w: %q is not in the owner's memory, %q", ErrNamespace, []string(ns), []string(m.home))
	}
	return ns, nil
}

func inRun(ctx context.Context) bool {
	_, err := host.FromContext(ctx)
	return err == nil
}

// Put keeps a value, anything that encodes to JSON, and returns its version.
func (m *Memory) Put(ctx context.Context, ns Namespace, key string, value any, o MemoryOptions) (string, error) {
	ns, err := m.check(ctx, ns)
	if err != nil {
		return "", err
	}
	raw, err := encodeValue(value)
	if err != nil {
		return "", fmt.Errorf("agent: remembering %q: %w", key, err)
	}
	put := shelf.PutOptions{Version: store.Version(o.Version), Create: o.Create, TTL: o.TTL, Once: perdure.Key(ctx)}
	item, err := m.shelf.Put(ctx, ns, key, raw, put)
	if err != nil {
		return "", memoryError(ns, key, err)
	}
	return string(item.Version), nil
}

// Get returns a value, or ErrNoMemory.
func (m *Memory) Get(ctx context.Context, ns Namespace, key string) (*MemoryItem, error) {
	ns, err := m.check(ctx, ns)
	if err != nil {
		return nil, err
	}
	item, err := m.shelf.Get(ctx, ns, key)
	if err != nil {
		return nil, memoryError(ns, key, err)
	}
	return memoryItem(item), nil
}

// Delete forgets a value, of a version if that is not "". What is not there is
// forgotten already.
func (m *Memory) Delete(ctx context.Context, ns Namespace, key, version string) error {
	ns, err := m.check(ctx, ns)
	if err != nil {
		return err
	}
	if err := m.shelf.Delete(ctx, ns, key, store.Version(version)); err != nil {
		return memoryError(ns, key, err)
	}
	return nil
}

// Clear forgets everything in a namespace and below it.
func (m *Memory) Clear(ctx context.Context, ns Namespace) error {
	ns, err := m.check(ctx, ns)
	if err != nil {
		return err
	}
	return m.shelf.Clear(ctx, ns)
}

func memoryItem(i *shelf.Item) *MemoryItem {
	return &MemoryItem{Namespace: i.Namespace, Key: i.Key, Value: i.Value, Version: string(i.Version),
		Created: i.Created, Updated: i.Updated, Expires: i.Expires, Cursor: i.Place}
}

func memoryError(ns Namespace, key string, err error) error {
	conflict, ok := errors.AsType[*shelf.ConflictError](err)
	switch {
	case ok:
		return &MemoryConflict{ns, key, string(conflict.Now)}
	case errors.Is(err, shelf.ErrNotFound):
		return fmt.Errorf("%w: %q in %q", ErrNoMemory, key, []string(ns))
	case errors.Is(err, shelf.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrNamespace, err)
	case errors.Is(err, shelf.ErrTooLarge):
		return fmt.Errorf("%w: %w", perdure.ErrTooLarge, err)
	}
	return fmt.Errorf("agent: memory %q: %w", key, err)
}

// encodeValue returns the JSON of a value. What JSON would change silently is
// refused.
func encodeValue(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: %w", perdure.ErrNotJSON, err)
	}
	raw := bytes.TrimSpace(b.Bytes())
	// Bytes that are no UTF-8 are escaped as this one, which itself is not.
	_, given := v.(json.RawMessage)
	plain := bytes.ReplaceAll(raw, []byte(`\\`), nil)
	if !given && bytes.Contains(plain, []byte(`\ufffd`)) {
		return nil, fmt.Errorf("%w: a text in it is not valid UTF-8", perdure.ErrNotJSON)
	}
	if err := strict.Text(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", perdure.ErrNotJSON, err)
	}
	return raw, nil
}
