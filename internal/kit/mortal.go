package kit

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// Mortal is a kit whose process can die: Die makes every later call of its
// store fail. Its worker may end with an error.
type Mortal struct {
	*Kit
	Dead atomic.Bool // whether it has died
}

// NewMortal starts a Mortal on a store.
func NewMortal(t *testing.T, inner store.Store, o perdure.Options, flows ...perdure.Flow) *Mortal {
	t.Helper()
	m := &Mortal{Kit: &Kit{T: t, Store: inner}}
	s := faulty.New(inner, func(faulty.Call) faulty.Fault {
		if m.Dead.Load() {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	rt := Runtime(t, s, o, flows...)
	m.Runtime = rt
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rt.Work(ctx) // it may have died
	}()
	m.Stop = func() { cancel(); <-done }
	t.Cleanup(m.Stop)
	return m
}

// Die lets no later call reach the store.
func (m *Mortal) Die() { m.Dead.Store(true) }

// Committed is an observer that is told of each entry that was committed.
type Committed func(perdure.Event)

func (Committed) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (f Committed) Committed(e perdure.Event) { f(e) }
