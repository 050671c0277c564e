package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/render"
)

func TestRunEndsAsTheRunDoes(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "hello").want(exitOK).only("hello\n")
		p.run("", "run", "echo", `{"a": [1]}`).want(exitOK).only("{\n  \"a\": [\n    1\n  ]\n}\n")
		p.run("from stdin\n", "run", "echo", "-").want(exitOK).only("from stdin\n")
		p.run("", "run", "echo").want(exitOK).only("")
		p.run("", "run", "fail", "x", "--thread", "broken").want(exitFailed, "failed: ", "the supplier is", "perdure retry broken").only("")
		p.run("", "run", "wait", "--thread", "w").want(exitWaiting, "waits")
		p.run("", "show", "w").want(exitOK, "perdure signal w payment")
		p.run("", "signal", "w", "payment", "42 €").want(exitOK)
		r := p.run("", "run", "order", "tea", "--thread", "t").want(exitWaiting, "Buy tea?", `"price": 42`, "waits for ask ", "--approve")
		if !strings.Contains(r.err, " t") || strings.Contains(r.out, "perdure:") {
			t.Errorf("messages are mixed with the output: %q and %q", r.out, r.err)
		}
	})
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "nope").want(exitNotFound, "unknown flow", "echo")
		p.run("", "run").want(exitUsage, "usage: perdure run FLOW [INPUT]")
		p.run("", "run", "echo", "x", "--budget", "tokens").want(exitUsage, `--budget: "tokens" is not NAME=VALUE`)
		p.run("", "run", "echo", "x", "--budget", "tokens=many").want(exitUsage, "--budget")
		p.run("", "run", "echo", "x", "--nope").want(exitUsage, "--nope")
		p.run("", "run", "echo", "x", "--watch", "--detach").want(exitUsage, "not both")
		p.run("", "run", "order", "tea", "--thread", "t").want(exitWaiting)
		p.run("", "run", "order", "tea", "--thread", "t", "--policy", "reject").want(exitConflict, "--policy enqueue", "perdure show t")
		p.run("", "run", "order", "tea", "--key", "k", "--thread", "k").want(exitWaiting)
		p.run("", "run", "order", "milk", "--key", "k", "--thread", "k").want(exitConflict)
	})
}

func TestRunWithAKeyIsTheSameRun(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		var first, second perdure.Run
		for _, run := range []*perdure.Run{&first, &second} {
			r := p.run("", "run", "echo", "x", "--key", "once", "--json").want(exitOK)
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
	r := p.run("", "run", "echo", "x", "--detach", "--thread", "later").want(exitOK, "is queued", "no worker is alive", "perdure worker")
	r.only("later\n")
	p.run("", "threads").want(exitOK, "later", "queued")
	// The next command that works on the store does this too.
	p.run("", "run", "echo", "y", "--thread", "later").want(exitOK).only("y\n")
	p.run("", "show", "later").want(exitOK, "✓ say", `"x"`, `"y"`)
}

func TestRunWatchedTellsEachStep(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("", "run", "order", "tea", "--thread", "t", "--watch").want(exitWaiting, "plan: price, approve, buy", "✓ /price", "? Buy tea?", `"price": 42`)
		if strings.Contains(r.out+r.err, "\x1b") {
			t.Errorf("there are control characters in %q", r.err)
		}
		p.run("", "run", "clerk", "hello", "--watch").want(exitOK, "I can only pay.").only("I can only pay.\n")
	})
}

func TestRunWatchedAsJSONIsAStream(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("", "run", "echo", "x", "--watch", "--json").want(exitOK)
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
	p.runIn(ctx, "", "run", "wait", "x", "--thread", "t").want(exitInterrupted)
	p.setUp = nil
	p.run("", "signal", "t", "payment", "paid").want(exitOK)
	if _, err := p.rt.WaitEnd(t.Context(), "t", ""); err != nil {
		t.Fatal(err)
	}
	p.run("", "show", "t").want(exitOK, "succeeded")
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
	gone.run("", "threads").want(exitUnavailable)
	(&place{t: t, flags: []string{"--store", "sqlite:/nowhere/x.db"}}).run("", "threads").want(exitUnavailable, "there is no store")
	(&place{t: t, flags: []string{"--store", "memory:", "--server", "http://x"}}).run("", "threads").want(exitUsage, "not both")
	(&place{t: t, flags: []string{"--server", "nonsense"}}).run("", "threads").want(exitUsage)
}

func TestRunSaysWhatItWaitsFor(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		for _, flags := range [][]string{nil, {"--watch"}} {
			ctx, cancel := context.WithCancel(t.Context())
			p.setUp = func(a *app) { a.term.Err = &cancelling{Writer: a.term.Err, text: "waits its turn", cancel: cancel} }
			p.runIn(ctx, "", append([]string{"run", "order", "milk", "--thread", "t"}, flags...)...).want(exitInterrupted, "waits for ask "+render.AskID(ask), "perdure answer "+render.AskID(ask)+" --approve")
		}
	})
}

func TestRunTellsOfFailedAttempts(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		for _, flags := range [][]string{nil, {"--watch"}} { // in a pipe too
			p.run("", append([]string{"run", "flaky", "x"}, flags...)...).want(exitOK, "↻ /call failed; attempt 2 of 3 at ", ": connection refused").only("reached\n")
		}
	})
}
