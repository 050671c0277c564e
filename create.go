package perdure

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// CreateRequest asks for a thread.
type CreateRequest struct {
	Thread   string            // its id; "": a generated one
	Title    string            // of the thread
	User     string            // who owns it
	Metadata map[string]string // of the thread
	State    map[string]any    // what its state begins with, by key; keys that begin with "agent." belong to package agent
	Key      string            // idempotency key: the same key gives the same thread
	By       string            // who asked for it
}

// Create makes a thread without a run; Start makes its first one. If there is a
// thread with that id it is ErrExists. The Status of a thread without runs is
// "".
//
// With a Key it can be repeated: the id, where none is given, follows from it,
// and the thread that was made is returned as it is now. The same key with
// another request is ErrKeyReused.
func (r *Runtime) Create(ctx context.Context, q CreateRequest) (*Thread, error) {
	owner, err := r.tenant.NewOwner(q.User)
	if err != nil {
		return nil, err
	}
	q.User = owner
	b, err := r.checkCreate(q)
	if err != nil {
		return nil, err
	}
	o, err := r.life.Create(ctx, q.Thread, q.Key, b)
	if err != nil {
		return nil, err
	}
	return r.threadInfo(ctx, o)
}

// ownKeys is what the keys of the state begin with that package agent keeps.
const ownKeys = "agent."

// checkCreate returns what the first entry of a thread says.
func (r *Runtime) checkCreate(q CreateRequest) (journal.Body, error) {
	b := journal.Body{User: q.User, Title: &q.Title, Meta: q.Metadata}
	if q.Thread != "" {
		if err := threads.CheckID(q.Thread); err != nil {
			return b, err
		}
	}
	if err := errors.Join(fault.CheckText("the title", q.Title, 1000), fault.CheckText("the user", q.User, 500), fault.CheckText("the key", q.Key, 500),
		fault.CheckText("who asks", q.By, 500), fault.CheckMetadata(q.Metadata)); err != nil {
		return b, err
	}
	for _, key := range slices.Sorted(maps.Keys(q.State)) {
		if err := threads.CheckKey(key); err != nil {
			return b, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
		}
		if strings.HasPrefix(key, ownKeys) {
			return b, fmt.Errorf("%w: the state key %.40q belongs to package agent", fault.ErrInvalid, key)
		}
		if q.State[key] == nil {
			return b, fmt.Errorf("%w: state %.40q is nothing", fault.ErrInvalid, key)
		}
		raw, err := exact.Encode(q.State[key], reflect.TypeOf(q.State[key]))
		if err != nil {
			return b, fmt.Errorf("state %q: %w", key, err)
		}
		b.State = append(b.State, journal.Change{Key: key, Set: &journal.Value{JSON: raw}})
	}
	if q.Key != "" {
		all, err := json.Marshal(b)
		if err != nil {
			return b, err
		}
		sum := sha256.Sum256(all)
		b.Key = base64.RawURLEncoding.EncodeToString(sum[:15])
	}
	b.By = q.By // whoever repeats it asks for the same
	return b, nil
}
