package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/render"
)

func TestRunEndsAsTheRunDoes(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "hello").want(exit.OK).only("hello\n")
		p.run("", "run", "echo", `{"a": [1]}`).want(exit.OK).only("{\n  \"a\": [\n    1\n  ]\n}\n")
		p.run("from stdin\n", "run", "echo", "-").want(exit.OK).only("from stdin\n")
		p.run("", "run", "echo").want(exit.OK).only("")
		p.run("", "run", "fail", "x", "--thread", "broken").want(exit.Failed, "failed: ", "the supplier is", "perdure retry broken").only("")
		p.run("", "run", "wait", "--thread", "w").want(exit.Waiting, "waits")
		p.run("", "show", "w").want(exit.OK, "perdure signal w payment")
		p.run("", "signal", "w", "payment", "42 €").want(exit.OK)
		r := p.run("", "run", "order", "tea", "--thread", "t").want(exit.Waiting, "Buy tea?", `"price": 42`, "waits for ask ", "--approve")
		if !strings.Contains(r.err, " t") || strings.Contains(r.out, "perdure:") {
			t.Errorf("messages are mixed with the output: %q and %q", r.out, r.err)
		}
	})
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "nope").want(exit.NotFound, "unknown flow", "echo")
		p.run("", "run").want(exit.BadUsage, "usage: perdure run FLOW [INPUT]")
		p.run("", "run", "echo", "x", "--budget", "tokens").want(exit.BadUsage, `--budget: "tokens" is not NAME=VALUE`)
		p.run("", "run", "echo", "x", "--budget", "tokens=many").want(exit.BadUsage, "--budget")
		p.run("", "run", "echo", "x", "--nope").want(exit.BadUsage, "--nope")
		p.run("", "run", "echo", "x", "--watch", "--detach").want(exit.BadUsage, "not both")
		p.run("", "run", "order", "tea", "--thread", "t").want(exit.Waiting)
		p.run("", "run", "order", "tea", "--thread", "t", "--policy", "reject").want(exit.Conflict, "--policy enqueue", "perdure show t")
		p.run("", "run", "order", "tea", "--key", "k", "--thread", "k").want(exit.Waiting)
		p.run("", "run", "order", "milk", "--key", "k", "--thread", "k").want(exit.Conflict)
	})
}

func TestRunWithAKeyIsTheSameRun(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		var first, second perdure.Run
		for _, run := range []*perdure.Run{&first, &second} {
			r := p.run("", "run", "echo", "x", "--key", "once", "--json").want(exit.OK)
			if err := json.Unmarshal([]byte(r.out), run); err != nil {
				t.Fatalf("%v in %s", err, r.out)
			}
		}
		if first.ID == "" || first.ID != second.ID || first.Status != perdure.Succeeded || string(first.Output) != `"x"` {
			t.Errorf("the runs are %+v and %+v", first, second)
		}
	})
}

func TestRunDetachedIsLeftToWorkers(t *testing.T) {
	p := stored(t)
	r := p.run("", "run", "echo", "x", "--detach", "--thread", "later").want(exit.OK, "is queued", "no worker is alive", "perdure worker")
	r.only("later\n")
	p.run("", "threads").want(exit.OK, "later", "queued")
	// The next command that works on the store does this too.
	p.run("", "run", "echo", "y", "--thread", "later").want(exit.OK).only("y\n")
	p.run("", "show", "later").want(exit.OK, "✓ say", `"x"`, `"y"`)
}

func TestRunWatchedTellsEachStep(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("", "run", "order", "tea", "--thread", "t", "--watch").want(exit.Waiting, "plan: price, approve, buy", "✓ /price", "? Buy tea?", `"price": 42`)
		if strings.Contains(r.out+r.err, "\x1b") {
			t.Errorf("there are control characters in %q", r.err)
		}
		p.run("", "run", "clerk", "hello", "--watch").want(exit.OK, "I can only pay.").only("I can only pay.\n")
	})
}

func TestRunWatchedAsJSONIsAStream(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("", "run", "echo", "x", "--watch", "--json").want(exit.OK)
		var kinds []string
		lines := bufio.NewScanner(strings.NewReader(r.out))
		for lines.Scan() {
			var line struct {
				Kind   string
				Status perdure.Status
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatalf("%v in %s", err, lines.Text())
			}
			kinds = append(kinds, line.Kind+string(line.Status))
		}
		if got := strings.Join(kinds, " "); got != "queued claimed step endedsucceeded donesucceeded" {
			t.Errorf("the kinds are %s", got)
		}
	})
}

func TestAnInterruptedCommandLeavesTheRun(t *testing.T) {
	p := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.setUp = func(a *app) { a.term.Err = &cancelling{Writer: a.term.Err, text: "thread t", cancel: cancel} }
	p.runIn(ctx, "", "run", "wait", "x", "--thread", "t").want(exit.Interrupted)
	p.setUp = nil
	p.run("", "signal", "t", "payment", "paid").want(exit.OK)
	if _, err := p.rt.WaitEnd(t.Context(), "t", ""); err != nil {
		t.Fatal(err)
	}
	p.run("", "show", "t").want(exit.OK, "succeeded")
}

// cancelling interrupts a command when it says something.
type cancelling struct {
	io.Writer
	text   string
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return c.Writer.Write(p)
}

func TestWhatCannotBeReachedHasACode(t *testing.T) {
	gone := &place{t: t, flags: []string{"--server", "http://127.0.0.1:1"}}
	gone.run("", "threads").want(exit.Unavailable)
	(&place{t: t, flags: []string{"--store", "sqlite:/nowhere/x.db"}}).run("", "threads").want(exit.Unavailable, "there is no store")
	(&place{t: t, flags: []string{"--store", "memory:", "--server", "http://x"}}).run("", "threads").want(exit.BadUsage, "not both")
	(&place{t: t, flags: []string{"--server", "nonsense"}}).run("", "threads").want(exit.BadUsage)
}

func TestRunSaysWhatItWaitsFor(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		for _, flags := range [][]string{nil, {"--watch"}} {
			ctx, cancel := context.WithCancel(t.Context())
			p.setUp = func(a *app) { a.term.Err = &cancelling{Writer: a.term.Err, text: "waits its turn", cancel: cancel} }
			p.runIn(ctx, "", append([]string{"run", "order", "milk", "--thread", "t"}, flags...)...).want(exit.Interrupted, "waits for ask "+render.AskID(ask), "perdure answer "+render.AskID(ask)+" --approve")
		}
	})
}

func TestRunTellsOfFailedAttempts(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		for _, flags := range [][]string{nil, {"--watch"}} { // in a pipe too
			p.run("", append([]string{"run", "flaky", "x"}, flags...)...).want(exit.OK, "↻ /call failed; attempt 2 of 3 at ", ": connection refused").only("reached\n")
		}
	})
}
