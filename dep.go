package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
)

// Resumable is a dep whose state outlives the pass. Dump returns the state as
// JSON without changing anything; it may be called at any time, even while the
// dep is in use. Load restores a dump; it must accept {} and unknown keys, since
// older and newer code wrote dumps too. A dep that was never dumped is not loaded.
//
// An error of Load means that the code cannot read the record, and blocks the run,
// see [ErrBlocked]. Anything that may fail temporarily, such as a connection,
// belongs in the function that makes the dep: Get returns its error.
type Resumable interface {
	Dump(ctx context.Context) (json.RawMessage, error)
	Load(ctx context.Context, state json.RawMessage) error
}

// Versioned is an upgrade of Resumable for deps whose dump is expensive: while
// the number stays the same, Dump is not called.
type Versioned interface {
	StateVersion() uint64
}

// Dep is a dependency that lives as long as a pass: it is created on first use,
// and closed at the pass's end if it is an io.Closer. If it is [Resumable] its
// state is kept in the journal: with the outcome of the step that changed it,
// when the run suspends or ends, and every few seconds inside a long step. A
// new pass, and a new run of the thread, load the newest state before the
// flow sees the value.
//
// Change a dep in leaf steps only, and call Get there with the step's own
// context: flow code runs again on resume and would change the dep twice, and only
// a step that called Get saves it.
type Dep[T any] struct {
	spec engine.DepSpec
	make func(context.Context) (T, error)
}

// A DepOption changes how a dep is kept.
type DepOption = engine.DepOption

// PerNode gives each place in the tree its own value. The place is the frame that
// calls Get: to use one value in the steps of a branch or scope, call Get there.
func PerNode() DepOption { return func(d *engine.DepSpec) { d.PerNode = true } }

// Shared lets several branches of a group use one value. After a crash its state
// is that of the last commit by any of them.
func Shared() DepOption { return func(d *engine.DepSpec) { d.Shared = true } }

// AtSteps omits the dumps inside long steps, for state that must agree with the
// finished steps.
func AtSteps() DepOption { return func(d *engine.DepSpec) { d.AtSteps = true } }

// WasKey adopts the state recorded under an earlier key of the dep.
func WasKey(old string) DepOption { return func(d *engine.DepSpec) { d.Was = old } }

// NewDep returns a dep with a key that is unique within a run and stable
// across versions of the code. Make may get other deps.
func NewDep[T any](key string, make func(context.Context) (T, error), opts ...DepOption) *Dep[T] {
	d := &Dep[T]{spec: engine.DepSpec{Key: key, Where: "unknown"}, make: make}
	if _, file, line, ok := runtime.Caller(1); ok {
		d.spec.Where = fmt.Sprintf("%s:%d", filepath.Base(file), line)
	}
	for _, o := range opts {
		o(&d.spec)
	}
	return d
}

// Get returns the value of this pass, and makes it on first use.
func (d *Dep[T]) Get(ctx context.Context) (T, error) {
	var zero T
	v, err := engine.GetDep(ctx, &d.spec, func(ctx context.Context) (any, error) { return d.make(ctx) })
	if err != nil {
		return zero, fmt.Errorf("%w %q: %w", fault.ErrDep, d.spec.Key, err)
	}
	value, _ := v.(T) // a nil interface is the zero T
	return value, nil
}

// Limits of a dump. If one is exceeded, the last good dump is kept, and an event of
// kind "problem" reports it.
const (
	MaxDump     = engine.MaxDump
	DumpTimeout = engine.DumpTimeout
)
