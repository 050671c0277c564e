package cli

import (
	"context"
	"log/slog"
	"sync"

	"github.com/perdure/perdure"
)

// transitions logs the changes of runs, one line each, with the contexts of their passes:
// a handler finds the ids of traces there.
type transitions struct {
	log *slog.Logger

	mu     sync.Mutex
	passes map[passOf][]context.Context // those under way
}

// passOf names a run. Threads of several tenants may have one id.
type passOf struct{ thread, run string }

var _ perdure.Tracer = (*transitions)(nil)

func newTransitions(log *slog.Logger) *transitions {
	return &transitions{log: log, passes: map[passOf][]context.Context{}}
}

// PassStarted logs that a worker has a run.
func (t *transitions) PassStarted(ctx context.Context, p perdure.PassStart) (context.Context, func(perdure.PassEnd)) {
	of := passOf{p.Thread, p.Run}
	t.mu.Lock()
	t.passes[of] = append(t.passes[of], ctx)
	t.mu.Unlock()
	t.log.InfoContext(ctx, "run claimed", "thread", p.Thread, "run", p.Run, "worker", p.Claim.Worker)
	return ctx, func(perdure.PassEnd) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for i, one := range t.passes[of] {
			if one == ctx {
				t.passes[of] = append(t.passes[of][:i], t.passes[of][i+1:]...)
				break
			}
		}
		if len(t.passes[of]) == 0 {
			delete(t.passes, of)
		}
	}
}

// Committed logs a change of a run's status.
func (t *transitions) Committed(e perdure.Event) {
	about := []any{"thread", e.Thread, "run", e.Run}
	add := func(name, value string) {
		if value != "" {
			about = append(about, name, value)
		}
	}
	switch e.Kind {
	case "suspended", "released":
		add("worker", e.Worker)
	case "ended":
		add("status", string(e.Status))
		add("error", e.Error)
	case "blocked", "quarantined":
		add("reason", e.Reason)
		add("error", e.Error)
	default:
		return
	}
	ctx := context.Background()
	t.mu.Lock()
	if all := t.passes[passOf{e.Thread, e.Run}]; len(all) == 1 {
		ctx = all[0]
	}
	t.mu.Unlock()
	t.log.InfoContext(ctx, "run "+e.Kind, about...)
}

// StepStarted does nothing.
func (*transitions) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// TraceContext changes nothing.
func (*transitions) TraceContext(_ context.Context, given string) string { return given }

// Annotate does nothing.
func (*transitions) Annotate(context.Context, []slog.Attr) {}
