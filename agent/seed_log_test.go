package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// workLog is a dep that collects what was done.
type workLog struct {
	mu    sync.Mutex
	steps []string
}

var _ perdure.Resumable = (*workLog)(nil)

func (l *workLog) record(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step)
}

func (l *workLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.steps)
}

func (l *workLog) Dump(context.Context) (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.Marshal(map[string][]string{"steps": l.steps})
}

func (l *workLog) Load(_ context.Context, state json.RawMessage) error {
	var v struct{ Steps []string }
	if err := json.Unmarshal(state, &v); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = v.Steps
	return nil
}

func decode(tb testing.TB, raw []byte, v any) {
	tb.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatal(err)
	}
}
