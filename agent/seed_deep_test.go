package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// Promise: todos, files and the conversation are restored in a new session;
// files on a disk are not reverted.
func TestSeedDeepAgentsRestoresTodosFilesAndMessages(t *testing.T) {
	root := t.TempDir()
	model := &brain{think: func(r *llm.Request) llm.Message {
		switch {
		case last(r).Role == llm.RoleTool:
			return llm.Assistant(results(last(r)))
		case last(r).Text() == "work":
			return calls(
				call("write_todos", `{"todos":[{"id":"1","content":"plan","status":"completed"},{"id":"2","content":"write","status":"in_progress"}]}`),
				call("write_file", `{"path":"/notes.md","text":"first"}`),
				call("write_file", `{"path":"/disk/out.txt","text":"first"}`))
		case last(r).Text() == "change":
			return calls(
				call("write_todos", `{"todos":[{"id":"2","status":"completed"}]}`),
				call("write_file", `{"path":"/notes.md","text":"second"}`),
				call("write_file", `{"path":"/disk/out.txt","text":"second"}`))
		}
		return llm.Assistant(fmt.Sprintf("I know %d messages", len(r.Messages)))
	}}
	fs := files.Composite(map[string]files.FS{"/disk": files.Disk(root)}, files.State())
	deep := agent.New("deep", model, agent.Options{Files: fs, Tools: agent.TodoTools()})
	perduretest.Virtual(t, flows(deep), func(t *testing.T, e *perduretest.Env) {
		look := func(thread, todo, note string) {
			t.Helper()
			at, err := e.Runtime().StateAt(t.Context(), thread, 0)
			if err != nil {
				t.Fatal(err)
			}
			todos, err := agent.TodosAt(at.State)
			if err != nil || len(todos) != 2 || string(todos[1].Status) != todo {
				t.Errorf("the todos are %v, %v; want the second %s", todos, err, todo)
			}
			all, err := files.At(at.State)
			if err != nil || len(all) != 1 || all[0].Text != note {
				t.Errorf("the files are %v, %v; want a note %q", all, err, note)
			}
		}
		e.Start("t", "flow", "work")
		e.Wait("t", perdure.Succeeded)
		thread, err := e.Runtime().Get(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		e.Restart()
		look("t", "in_progress", "first")
		e.Start("t", "flow", "change")
		e.Wait("t", perdure.Succeeded)
		look("t", "completed", "second")
		e.Start("t", "flow", "what do you know?")
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "I know 9 messages" {
			t.Errorf("a new session: %s", got)
		}
		if _, err := e.Runtime().Rewind(t.Context(), "t", thread.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		look("t", "in_progress", "first")
		disk, err := os.ReadFile(filepath.Join(root, "out.txt"))
		if err != nil || string(disk) != "second" {
			t.Errorf("the disk has %q, %v; a rewind leaves it alone", disk, err)
		}
		e.Start("t", "flow", "what do you know?")
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "I know 5 messages" {
			t.Errorf("after the rewind: %s", got)
		}
	})
}

// Promise: a gated call interrupts the agent; a second process reads what is
// asked, decides, and the thread goes on with its files and todos.
func TestSeedDeepAgentsDecidesInASecondProcess(t *testing.T) {
	var n tally
	model := scripted(
		calls(call("write_file", `{"path":"/draft.md","text":"a draft"}`), call("publish", `{"id":"draft"}`)),
		calls(call("read_file", `{"path":"/draft.md"}`)),
		llm.Assistant("published"))
	deep := agent.New("deep", model, agent.Options{Files: files.State(), Tools: []agent.Tool{noted(&n, "publish", agent.NeedsApproval())}})
	play(t, deep, func(t *testing.T, e *perduretest.Env) {
		e.Advance(72 * time.Hour)
		e.Restart()
		ask := asked(t, e, "t", 1)[0]
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		// The peer loses the results of calls beside a gated one.
		if all, err := files.At(at.State); err != nil || len(all) != 1 || all[0].Text != "a draft" {
			t.Errorf("while it waits the files are %v, %v", all, err)
		}
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove, By: "ann"})
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "published" {
			t.Errorf("got %q", got)
		}
	})
	n.want(t, "publish:1")
}

// Promise: several gated calls of one message are decided each by itself, in any
// order, and the model goes on when all are.
func TestSeedDeepAgentsDecidesEachCallOfAMessage(t *testing.T) {
	var n tally
	model := scripted(calls(call("a", `{"id":"1"}`), call("b", `{"id":"1"}`), call("c", `{"id":"1"}`)), llm.Assistant("done"))
	gated := agent.NeedsApproval()
	deep := agent.New("deep", model, agent.Options{Tools: []agent.Tool{noted(&n, "a", gated), noted(&n, "b", gated), noted(&n, "c", gated)}})
	play(t, deep, func(t *testing.T, e *perduretest.Env) {
		asks := asked(t, e, "t", 3)
		reply(t, e, asks[2], perdure.Answer{Decision: agent.DecisionApprove})
		left := asked(t, e, "t", 2)
		n.want(t, "c:1") // it does not wait for the others
		e.Restart()
		reply(t, e, left[0], perdure.Answer{Decision: agent.DecisionReject})
		reply(t, e, left[1], perdure.Answer{Decision: agent.DecisionApprove})
		e.Wait("t", perdure.Succeeded)
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: asks[0].ID, Answer: perdure.Answer{Decision: agent.DecisionApprove}}); !errors.Is(err, perdure.ErrAnswered) {
			t.Errorf("approving what was rejected: %v", err)
		}
	})
	n.want(t, "b:1 c:1")
	if got := len(model.requests()); got != 2 {
		t.Errorf("the model was asked %d times, want once before and once after all decisions", got)
	}
}

// Promise: what a thread remembers ends with it, and what a user's memory holds
// is there for other threads.
func TestSeedDeepAgentsKeepsMemoryAcrossThreads(t *testing.T) {
	model := &brain{think: func(r *llm.Request) llm.Message {
		switch {
		case last(r).Role == llm.RoleTool:
			return llm.Assistant(results(last(r)))
		case last(r).Text() == "remember":
			return calls(call("remember", `{"key":"tone","text":"friendly"}`))
		}
		return calls(call("recall", `{}`))
	}}
	deep := agent.New("deep", model, agent.Options{Tools: agent.MemoryTools(agent.MemoryToolOptions{})})
	perduretest.Virtual(t, flows(deep), func(t *testing.T, e *perduretest.Env) {
		ask := func(thread, user, what string) string {
			t.Helper()
			if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "flow", User: user, Input: what}); err != nil {
				t.Fatal(err)
			}
			return text(t, e.Wait(thread, perdure.Succeeded))
		}
		ask("t1", "ann", "remember")
		e.Restart()
		if got := ask("t2", "ann", "recall"); !contains(got, "friendly") {
			t.Errorf("ann's other thread: %s", got)
		}
		if got := ask("t3", "bob", "recall"); contains(got, "friendly") {
			t.Errorf("bob reads ann's memory: %s", got)
		}
	})
}

// Promise: a dependency's state is dumped every few seconds while the turn runs
// and once more at its end, and loaded before the agent runs elsewhere.
func TestSeedZavDependencyIsDumpedAndRestoredElsewhere(t *testing.T) {
	var n tally
	log := perdure.NewDep("progress_log", func(context.Context) (*workLog, error) { return new(workLog), nil })
	search := agent.NewTool("search", "Searches.", func(ctx context.Context, o order) (string, error) {
		l, err := log.Get(ctx)
		if err != nil {
			return "", err
		}
		n.add("search " + o.ID)
		from := l.len()
		for i := from; i < 6; i++ { // it goes on where the dep is, not at the beginning
			l.record(fmt.Sprintf("%s page %d", o.ID, i))
			n.add("page")
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				return "", ctx.Err()
			}
			if i == 3 && n.of("search "+o.ID) == 1 {
				return "", hang(ctx)
			}
		}
		return fmt.Sprintf("%d pages, %d before", l.len(), from), nil
	})
	model := scripted(calls(call("search", `{"id":"x"}`)), llm.Assistant("done"))
	perduretest.Virtual(t, perduretest.Setup{
		Flows:   []perdure.Flow{agent.NewFlow("flow", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{search}}))},
		Options: perdure.Options{DumpInterval: 5 * time.Second},
	}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Advance(40 * time.Second) // it hangs after 12 s
		e.Restart()
		e.Wait("t", perdure.Succeeded)
		seen := model.requests()
		if got := results(last(&seen[len(seen)-1])); got != "search=6 pages, 4 before;" {
			t.Errorf("the tool came to %q", got)
		}
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(at.Deps["progress_log"]); !contains(got, "x page 5") {
			t.Errorf("in the end the dep is kept as %s", got)
		}
	})
	n.want(t, "page:6 search x:2")
}

// Promise: the three rules of a resumable dependency can be checked.
func TestSeedZavDependencyKeepsTheThreeRules(t *testing.T) {
	perduretest.CheckResumable(t,
		func() perdure.Resumable {
			l := new(workLog)
			l.record("one")
			l.record("two")
			return l
		},
		func() perdure.Resumable { return new(workLog) })
}

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// workLog is a dep that collects what was done.
type workLog struct {
	mu    sync.Mutex
	steps []string
}

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

var _ perdure.Resumable = (*workLog)(nil)
