package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// value returns a value for an entry: a small one inline, a large one as a blob
// that is written now.
func (p *Pass) value(raw json.RawMessage) (journal.Value, error) {
	v, err := p.engine.threads.Value(p.io, p.name, raw)
	if err != nil {
		return v, p.lose(err)
	}
	return v, nil
}

// load returns the JSON of a recorded value. A failing store is not a result
// that the code may see: it is retried for a while, and then the pass is lost.
// A damaged or missing value blocks the run.
func (p *Pass) load(f *frame, v journal.Value) (json.RawMessage, error) {
	if v.Blob == nil && !v.Elsewhere() {
		return v.JSON, nil
	}
	return patient(p, f, func() (json.RawMessage, error) { return p.engine.threads.Load(p.io, p.name, v) })
}

func patient[T any](p *Pass, f *frame, read func() (T, error)) (v T, err error) {
	for pause := time.Millisecond; ; pause *= 2 {
		v, err := read()
		switch {
		case err == nil:
			return v, nil
		case errors.Is(err, fault.ErrCorrupt), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
			return v, p.block(f, threads.Unreadable+err.Error())
		case pause > p.engine.opts.Lease, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrPoisoned):
			return v, p.lose(err)
		}
		select {
		case <-p.ctx.Done():
			return v, p.Err()
		case <-time.After(pause):
		}
	}
}

func (p *Pass) fit(b *journal.Body) error {
	err := p.engine.threads.Fit(p.io, p.cells(), p.name, b)
	if err != nil && !undone(err) {
		return p.lose(err)
	}
	return err
}

// cells returns the store for the blobs of what is about to be committed. The caller
// holds order.
func (p *Pass) cells() store.Store {
	if p.inTx != nil {
		return p.inTx.cells
	}
	return p.engine.threads.Store
}

// RecordedAs decodes a recorded value into a T. A value that does not fit
// blocks the run before the code continues: given an error to handle, the code
// would believe that something failed that has succeeded. What and name
// identify the value, such as a step and its name.
func RecordedAs[T any](ctx context.Context, what, name string, raw json.RawMessage) (T, error) {
	v, err := exact.Decode[T](raw)
	if err == nil {
		return v, nil
	}
	var zero T
	f, outside := inside(ctx)
	if outside != nil {
		return zero, err
	}
	where := fmt.Sprintf("%s at %s/%s", what, f.path(), name)
	switch what {
	case "state":
		where = fmt.Sprintf("state %q, read at %s/", name, f.path())
	case "input":
		where = "the input"
	}
	return zero, f.pass.misfit(f, where, raw, reflect.TypeFor[T]().String(), err)
}

// misfit blocks the run because a recorded value cannot be read by the code.
func (p *Pass) misfit(f *frame, where string, raw json.RawMessage, reader string, err error) error {
	return p.block(f, fmt.Sprintf("%s:\n- recorded: %s\n+ the code: %s, which cannot read it: %s", where, shown(raw), reader, fault.Clip(err.Error(), maxShown)))
}
