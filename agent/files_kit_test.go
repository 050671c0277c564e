package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// toolCall is a call of a tool as a model makes it.
type toolCall struct {
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

// callTool calls a tool as a step, with its arguments checked.
func callTool(ctx context.Context, step string, tools []Tool, c toolCall) (Output, error) {
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name() == c.Name })
	if i < 0 {
		return Output{}, fmt.Errorf("no tool %s", c.Name)
	}
	raw, err := json.Marshal(c.Args)
	if err != nil {
		return Output{}, err
	}
	if raw, _, err = tools[i].arguments(string(raw)); err != nil {
		return Output{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	return perdure.Step(ctx, step, func(ctx context.Context) (Output, error) { return tools[i].call(ctx, raw) })
}

// toolFlow is a flow that makes calls, one after the other, and returns what
// they return.
func toolFlow(name string, tools []Tool) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, calls []toolCall) ([]string, error) {
		var all []string
		for i, c := range calls {
			out, err := callTool(ctx, fmt.Sprintf("call-%d", i), tools, c)
			if err != nil {
				return nil, err
			}
			if out.Error {
				out.Text = "error: " + out.Text
			}
			all = append(all, out.Text)
		}
		return all, nil
	})
}

// runTools makes calls on a new thread and returns what they return.
func runTools(t *testing.T, tools []Tool, calls ...toolCall) []string {
	t.Helper()
	var out []string
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{toolFlow("tools", tools)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "tools", calls)
		var err error
		if out, err = perdure.Output[[]string](e.Wait("t", perdure.Succeeded)); err != nil {
			t.Fatal(err)
		}
	})
	return out
}

func call(name string, args ...any) toolCall {
	c := toolCall{name, map[string]any{}}
	for i := 0; i < len(args); i += 2 {
		c.Args[args[i].(string)] = args[i+1]
	}
	return c
}

// testShelf is a shelf in memory.
type testShelf struct {
	mu  sync.Mutex
	all map[string]string
}

var _ Shelf = (*testShelf)(nil)

func (s *testShelf) Get(_ context.Context, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.all[key]
	return []byte(v), ok, nil
}

func (s *testShelf) Put(_ context.Context, key string, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]string{}
	}
	s.all[key] = string(v)
	return nil
}

func (s *testShelf) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
	return nil
}

func (s *testShelf) List(_ context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k := range s.all {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
