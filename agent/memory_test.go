package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store/memstore"
)

func newMemory(t *testing.T) (*perdure.Runtime, *agent.Memory) {
	t.Helper()
	rt, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return rt, agent.MemoryOf(rt)
}

func TestMemoryKeepsVersions(t *testing.T) {
	ctx, ann := t.Context(), agent.UserMemory("ann", "clerk")
	rt, m := newMemory(t)
	if _, err := m.Get(ctx, ann, "tone"); !errors.Is(err, agent.ErrNoMemory) {
		t.Fatal(err)
	}
	first, err := m.Put(ctx, ann, "tone", map[string]any{"a": "<b>"}, agent.MemoryOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []agent.MemoryOptions{{Create: true}, {Version: first + "x"}} {
		_, err := m.Put(ctx, ann, "tone", 1, o)
		conflict, ok := errors.AsType[*agent.MemoryConflict](err)
		if !ok || conflict.Version != first || !errors.Is(err, agent.ErrMemoryConflict) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := m.Put(ctx, ann, "tone", json.RawMessage(`9007199254740993`), agent.MemoryOptions{Version: first}); err != nil {
		t.Fatal(err)
	}
	item, err := m.Get(ctx, ann, "tone")
	if err != nil || string(item.Value) != "9007199254740993" || !slices.Equal(item.Namespace, ann) {
		t.Fatal(item, err)
	}
	if err := m.Delete(ctx, ann, "tone", first); !errors.Is(err, agent.ErrMemoryConflict) {
		t.Error(err)
	}
	if _, err := agent.MemoryOf(rt.Tenant("other")).Get(ctx, ann, "tone"); !errors.Is(err, agent.ErrNoMemory) {
		t.Errorf("another tenant reads it: %v", err)
	}
	if err := m.Clear(ctx, agent.UserMemory("ann")); err != nil {
		t.Error(err)
	}
	for item, err := range m.List(ctx, nil, agent.MemoryList{}) {
		t.Errorf("left is %v, %v", item, err)
	}
	for name, v := range map[string]any{"no UTF-8": "a\xff", "half a surrogate": json.RawMessage(`"\ud800"`), "a channel": make(chan int), "no JSON": json.RawMessage(`{`)} {
		if _, err := m.Put(ctx, ann, "k", v, agent.MemoryOptions{}); !errors.Is(err, perdure.ErrNotJSON) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Put(ctx, ann, "k", strings.Repeat("x", 1<<18), agent.MemoryOptions{}); !errors.Is(err, perdure.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := m.Put(ctx, ann, "", "x", agent.MemoryOptions{}); !errors.Is(err, agent.ErrNamespace) {
		t.Error(err)
	}
	for _, text := range []string{`\ufffd`, "\ufffd", `a\\ufffd`} {
		if _, err := m.Put(ctx, ann, "k", text, agent.MemoryOptions{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMemoryIsListedAndSearched(t *testing.T) {
	ctx := t.Context()
	_, m := newMemory(t)
	for i := range 150 {
		text := "nothing"
		if i%10 == 0 {
			text = "likes RED apples"
		}
		if _, err := m.Put(ctx, agent.UserMemory("ann", fmt.Sprint("part-", i%3)), fmt.Sprint("key-", i), map[string]string{"text": text}, agent.MemoryOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Put(ctx, agent.UserMemory("bob"), "key", "red apples", agent.MemoryOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	cursor := ""
	for range 100 {
		n := 0
		for item, err := range m.List(ctx, agent.UserMemory("ann"), agent.MemoryList{Query: "apples red", After: cursor, Limit: 4}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[item.Key] {
				t.Errorf("%s is listed twice", item.Key)
			}
			seen[item.Key], cursor = true, item.Cursor
			n++
		}
		if n == 0 {
			break
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d are found, want 15", len(seen))
	}
	if _, err := m.Put(ctx, agent.UserMemory("ann"), "best", []string{"apples", "red", "pears"}, agent.MemoryOptions{}); err != nil {
		t.Fatal(err)
	}
	best, err := m.Search(ctx, agent.UserMemory("ann"), "does she like red pears or apples?", 3)
	if err != nil || len(best) != 3 || best[0].Key != "best" {
		t.Errorf("%v, %v", best, err)
	}
	if none, err := m.Search(ctx, agent.UserMemory("ann"), "zebra", 3); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	if newest, err := m.Search(ctx, agent.UserMemory("ann"), "", 3); err != nil || len(newest) != 3 {
		t.Errorf("%v, %v", newest, err)
	}
}

func TestMemoryIsForgottenInTime(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{}, func(t *testing.T, e *perduretest.Env) {
		m := agent.MemoryOf(e.Runtime())
		if _, err := m.Put(t.Context(), nil, "k", "v", agent.MemoryOptions{TTL: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		e.Advance(24*time.Hour - time.Second)
		if _, err := m.Get(t.Context(), nil, "k"); err != nil {
			t.Error(err)
		}
		e.Advance(time.Second)
		if _, err := m.Get(t.Context(), nil, "k"); !errors.Is(err, agent.ErrNoMemory) {
			t.Error(err)
		}
	})
}

func TestARunReachesItsOwnersMemoryOnly(t *testing.T) {
	var escaped *agent.Memory
	reach := perdure.NewFlow("reach", func(ctx context.Context, ns agent.Namespace) (string, error) {
		m, err := agent.MemoryHere(ctx)
		if err != nil {
			return "", err
		}
		if _, err := m.Get(ctx, nil, "k"); !errors.Is(err, perdure.ErrNoLeaf) {
			return "", fmt.Errorf("flow code reads memory: %v", err)
		}
		return perdure.Step(ctx, "reach", func(ctx context.Context) (string, error) {
			if escaped != nil {
				m = escaped
			}
			escaped = m
			_, put := m.Put(ctx, ns, "k", "mine", agent.MemoryOptions{})
			_, get := m.Get(ctx, ns, "k")
			_, search := m.Search(ctx, ns, "", 1)
			for _, err := range []error{put, get, search, m.Clear(ctx, append(ns, "x"))} {
				if err != nil {
					return fmt.Sprint(errors.Is(err, agent.ErrNamespace)), nil
				}
			}
			return "reached", nil
		})
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{reach}}, func(t *testing.T, e *perduretest.Env) {
		rt := e.Runtime()
		if _, err := agent.MemoryHere(t.Context()); !errors.Is(err, perdure.ErrNoRun) {
			t.Error(err)
		}
		for i, tt := range []struct {
			user string
			ns   agent.Namespace
			want string
		}{
			{"ann", nil, "true"}, // the empty one is the owner's; Clear of "x" is not
			{"ann", agent.UserMemory("ann"), "reached"}, {"ann", agent.UserMemory("ann", "..", "bob"), "reached"},
			{"ann", agent.UserMemory("bob"), "true"}, {"ann", agent.Namespace{"user"}, "true"}, {"ann", agent.Namespace{"ann"}, "true"},
			{"ann", agent.Namespace{"user/ann"}, "true"}, {"", agent.UserMemory("ann"), "true"}, {"", agent.UserMemory(""), "reached"},
		} {
			escaped = nil
			thread := fmt.Sprint("t", i)
			if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "reach", Input: tt.ns, User: tt.user}); err != nil {
				t.Fatal(err)
			}
			got, err := perdure.Output[string](e.Wait(thread, perdure.Succeeded))
			if err != nil || got != tt.want {
				t.Errorf("%q reaches for %q: %s, want %s (%v)", tt.user, []string(tt.ns), got, tt.want, err)
			}
		}
		// What one thread got does not serve another user's.
		if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "eve", Flow: "reach", Input: agent.UserMemory(""), User: "eve"}); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("eve", perdure.Succeeded)); err != nil || got != "true" {
			t.Errorf("eve uses another's memory: %s %v", got, err)
		}
	})
}

// memorist is an agent whose model makes one call and says its result.
func memorist(name, tool string, args func(r *llm.Request) string) perdure.Flow {
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call(tool, args(r)))
		}
		return llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Text: results(last(r))}}}
	}}
	return agent.NewFlow(name, agent.New(name, model, agent.Options{Tools: agent.MemoryTools(agent.MemoryToolOptions{})}))
}

func lastText(r *llm.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == llm.RoleUser {
			return m.Parts[0].Text
		}
	}
	return ""
}

func TestWhatIsRememberedIsRecalledOnOtherThreadsAndListed(t *testing.T) {
	learn, ask := memorist("learn", "remember", lastText), memorist("ask", "recall", lastText)
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{learn, ask}}, func(t *testing.T, e *perduretest.Env) {
		say := func(user, thread, flow, text string) string {
			t.Helper()
			if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: text, User: user}); err != nil {
				t.Fatal(err)
			}
			return string(e.Wait(thread, perdure.Succeeded).Output)
		}
		say("ann", "a1", "learn", `{"key":"diet","text":"Ann eats no meat."}`)
		say("ann", "a1", "learn", `{"text":"Ann lives in Rome."}`)
		say("ann", "a1", "learn", `{"text":"Ann lives in Rome."}`) // once is enough
		if got := say("ann", "a2", "ask", `{"query":"what meat?"}`); !strings.Contains(got, "eats no meat") || strings.Contains(got, "Rome") {
			t.Errorf("recalled: %s", got)
		}
		if got := say("ann", "a2", "ask", `{}`); !strings.Contains(got, "eats no meat") || strings.Count(got, "Rome") != 1 {
			t.Errorf("recalled: %s", got)
		}
		// Whatever the model says, another's memory is not reached.
		for i, args := range []string{`{}`, `{"query":"ann"}`, `{"query":"meat","user":"ann"}`, `{"query":"user/ann"}`} {
			if got := say("eve", fmt.Sprint("e", i), "ask", args); strings.Contains(got, "no meat") || strings.Contains(got, "Rome") {
				t.Errorf("eve recalls %s", got)
			}
		}
		for i, args := range []string{`{"key":"../ann/diet","text":"Ann eats meat."}`, `{"key":"diet","text":"Ann eats meat.","namespace":["user","ann"]}`} {
			say("eve", fmt.Sprint("w", i), "learn", args)
		}
		at, err := e.Runtime().StateAt(t.Context(), "a1", 0)
		if err != nil {
			t.Fatal(err)
		}
		var facts []string
		for _, fact := range at.Facts {
			facts = append(facts, string(fact))
		}
		slices.Sort(facts)
		if diff := cmp.Diff(facts, []string{`"Ann eats no meat."`, `"Ann lives in Rome."`}); diff != "" {
			t.Error(diff)
		}
		item, err := agent.MemoryOf(e.Runtime()).Get(t.Context(), agent.UserMemory("ann"), "diet")
		var memo agent.Memo
		if err != nil || item.Decode(&memo) != nil || memo != (agent.Memo{Text: "Ann eats no meat.", Thread: "a1"}) {
			t.Errorf("%+v, %v", memo, err)
		}
	})
}

// TestAStepPutsOnce crashes at every write: an expectation that a step has is
// met by what it wrote itself before the crash.
func TestAStepPutsOnce(t *testing.T) {
	keep := perdure.NewFlow("keep", func(ctx context.Context, _ string) (string, error) {
		version, err := perdure.Step(ctx, "create", func(ctx context.Context) (string, error) {
			m, err := agent.MemoryHere(ctx)
			if err != nil {
				return "", err
			}
			v, err := m.Put(ctx, nil, "k", 1, agent.MemoryOptions{Create: true})
			return "version=" + v, err
		})
		if err != nil {
			return "", err
		}
		return perdure.Step(ctx, "replace", func(ctx context.Context) (string, error) {
			m, err := agent.MemoryHere(ctx)
			if err != nil {
				return "", err
			}
			if _, err := m.Put(ctx, nil, "k", 2, agent.MemoryOptions{Version: strings.TrimPrefix(version, "version=")}); err != nil {
				return "", err
			}
			item, err := m.Get(ctx, nil, "k")
			if err != nil {
				return "", err
			}
			return string(item.Value), nil
		})
	})
	sweep(t, perduretest.Crash{
		Flows: []perdure.Flow{keep},
		Start: []perdure.StartRequest{{Flow: "keep", Input: "", User: "ann"}},
		Same:  func(s string) string { return regexp.MustCompile(`version=\w+`).ReplaceAllString(s, "version") },
	})
}
