package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// Create makes a thread, whose first entry says b, with an id, "" for a generated
// one.
func (r *Control) Create(ctx context.Context, id, key string, b journal.Body) (*threads.Opened, error) {
	if id == "" {
		id = threads.NewRunID()
		if key != "" {
			id = r.tenant.IDForKey("thread created with key", key)
		}
	}
	b.Thread, b.Tenant = id, r.tenant.Name
	if key != "" {
		b.ID = threads.Base32.EncodeToString(r.threads.Hash("created", r.tenant.Name, id, key)[:15])
	}
	var err error
	for range mostTries {
		// Until its first summary it is a thread without runs, which only who reads it knows.
		name, nameErr := r.createAs(ctx, threads.Summary{ID: id, User: b.User, Title: *b.Title, Rough: true}, func(string) error { return nil })
		if nameErr != nil {
			return nil, nameErr
		}
		var o *threads.Opened
		if o, err = r.begin(ctx, name, b, key); err == nil {
			return o, nil
		}
		if errors.Is(err, fault.ErrTooLarge) {
			err = r.giveUp(ctx, id, name, err)
		}
		if !errors.Is(err, fault.ErrErased) {
			return nil, err
		}
		// An erase is under way, or was cut off: the new thread comes behind it.
		if err := r.finishErase(ctx, name, id); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// begin appends the first entry of a thread, unless it was made with the same
// key.
func (r *Control) begin(ctx context.Context, name string, b journal.Body, key string) (*threads.Opened, error) {
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
func (r *Control) begunWith(ctx context.Context, name string, b journal.Body, key string) error {
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
