package engine

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// value returns a value for an entry: small ones as they are, large ones as a
// blob that is written now.
func (p *Pass) value(raw json.RawMessage) (journal.Value, error) {
	v, err := p.engine.threads.Value(p.io, p.name, raw)
	if err != nil {
		return v, p.lose(err)
	}
	return v, nil
}

// load returns the JSON of a recorded value. A store that fails is no outcome
// of the code that wants to read: it is asked again for a while, and then the
// pass is lost. A value that is damaged or gone blocks the run.
func (p *Pass) load(f *frame, v journal.Value) (json.RawMessage, error) {
	return p.patient(f, func() (json.RawMessage, error) { return p.engine.threads.Load(p.io, p.name, v) })
}

func (p *Pass) patient(f *frame, read func() (json.RawMessage, error)) (json.RawMessage, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		raw, err := read()
		switch {
		case err == nil:
			return raw, nil
		case errors.Is(err, fault.ErrCorrupt), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
			return nil, p.block(f, threads.Unreadable+err.Error())
		case pause > p.engine.opts.Lease, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned):
			return nil, p.lose(err)
		}
		select {
		case <-p.ctx.Done():
			return nil, p.Err()
		case <-time.After(pause):
		}
	}
}

// fit makes a body small enough for an entry.
func (p *Pass) fit(b *journal.Body) error {
	if err := p.engine.threads.Fit(p.io, p.name, b); err != nil {
		return p.lose(err)
	}
	return nil
}
