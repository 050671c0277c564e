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
	if q.Thread == "" {
		q.Thread = threads.NewRunID()
		if q.Key != "" {
			q.Thread = r.tenant.IDForKey("thread created with key", q.Key)
		}
	}
	b.Thread, b.Tenant = q.Thread, r.tenant.Name
	if q.Key != "" {
		b.ID = threads.Base32.EncodeToString(r.threads.Hash("created", r.tenant.Name, q.Thread, q.Key)[:15])
	}
	for range mostTries {
		// Until its first summary it is a thread without runs, which only who reads it knows.
		name, nameErr := r.createAs(ctx, threads.Summary{ID: q.Thread, User: q.User, Title: q.Title, Rough: true}, func(string) error { return nil })
		if nameErr != nil {
			return nil, nameErr
		}
		var o *threads.Opened
		if o, err = r.begin(ctx, name, b, q.Key); err == nil {
			_ = r.threads.Summarise(ctx, o) // who lists it reads it otherwise
			return r.threadInfo(ctx, o)
		}
		if errors.Is(err, fault.ErrTooLarge) {
			err = r.giveUp(ctx, q.Thread, name, err)
		}
		if !errors.Is(err, fault.ErrErased) {
			return nil, err
		}
		// An erase is under way, or was cut off: the new thread comes behind it.
		if err := r.erase(ctx, name, q.Thread, EraseOptions{}, true); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// begin appends the first entry of a thread, unless it was made with the same
// key.
func (r *Runtime) begin(ctx context.Context, name string, b journal.Body, key string) (*threads.Opened, error) {
	o, _, err := r.threads.Change(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq != 0 {
			return nil, nil, r.begunWith(ctx, name, b, key)
		}
		err := r.threads.Fit(ctx, name, &b)
		return []threads.Line{{Kind: journal.Created, Body: b}}, nil, err
	})
	return o, err
}

// begunWith returns errNothing if a thread was made with a key and the same
// request, else an error that says what is there.
func (r *Runtime) begunWith(ctx context.Context, name string, b journal.Body, key string) error {
	exists := fmt.Errorf("%w: %q", fault.ErrExists, b.Thread)
	if key == "" {
		return exists
	}
	for line, err := range r.threads.Store.Read(ctx, threads.JournalKey(name), 0) {
		if err != nil {
			return fault.IfDropped(name, err)
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return fmt.Errorf("%w: thread %s, entry %d: %w", fault.ErrCorrupt, b.Thread, line.Seq, err)
		}
		made, err := e.Read()
		switch {
		case err != nil || e.Kind != journal.Created || made.ID != b.ID:
			return exists
		case made.Key != b.Key:
			return fmt.Errorf("%w: key %q made thread %s with another request", fault.ErrKeyReused, key, b.Thread)
		}
		return threads.ErrNothing
	}
	return exists
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
	if err := errors.Join(checkText("the title", q.Title, 1000), checkText("the user", q.User, 500), checkText("the key", q.Key, 500),
		checkText("who asks", q.By, 500), checkMetadata(q.Metadata)); err != nil {
		return b, err
	}
	for _, key := range slices.Sorted(maps.Keys(q.State)) {
		if err := checkKey(key); err != nil {
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
