package terminal_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/terminal"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/examples/story"
	_ "github.com/perdure/perdure/store/memstore"
)

// run runs a program in virtual time and returns what it says. Without an input
// there is somebody, who types nothing.
func run(t *testing.T, p terminal.Program, flow perdure.Flow, in io.Reader) (string, error) {
	t.Helper()
	var out bytes.Buffer
	var err error
	synctest.Test(t, func(t *testing.T) {
		if in == nil {
			r, w := io.Pipe()
			defer w.Close()
			in = r
		}
		p.Store, p.In, p.Out = "memory:", in, &out
		err = p.Run(t.Context(), flow)
	})
	return out.String(), err
}

// inOrder demands that a text holds others, in this order.
func inOrder(t *testing.T, text string, want ...string) {
	t.Helper()
	rest := text
	for _, w := range want {
		_, behind, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("there is no %q, or not in its place, in\n%s", w, text)
		}
		rest = behind
	}
}

var invoice = terminal.Program{Name: "procurement", Flow: "procurement", Input: procurement.Invoice}

// TestShowsRepliesOnce has a flow that asks nothing.
func TestShowsRepliesOnce(t *testing.T) {
	p := terminal.Program{Name: "story", Flow: "story", Input: "a kite", Ended: func(_ context.Context, rt *perdure.Runtime, thread string) error {
		_, err := rt.Get(t.Context(), thread)
		return err
	}}
	out, err := run(t, p, story.Flow(story.Options{Pace: time.Millisecond}), strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, out, "-- at work\n", "writer is asked: a kite\nOn a rock far out lived a kite.", "How many stairs?", "exit_loop", "done exit_loop", "\nnegative\n", "-- ended after 26 steps, resumed 0 times\nOn a rock")
	if n := strings.Count(out, "Nothing is left to be improved.\n"); n != 1 {
		t.Errorf("a reply is shown %d times:\n%s", n, out)
	}
}

// TestTakesAnswers has lines that are typed before they are asked for, one of
// which is none of the decisions.
func TestTakesAnswers(t *testing.T) {
	out, err := run(t, invoice, procurement.Flow(procurement.Options{}), strings.NewReader("approve\nperhaps\nreject not from there\n"))
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, out, "-- the plan: budget, compliance, signature\n",
		"-- step 1 of 3: budget\n? Is there a budget", "approve, reject, as manager> ", "manager answered: approve",
		"-- step 2 of 3: compliance\n", "does not fit", "compliance answered: reject",
		`{"ordered":false,"why":"no compliance"}`)
}

// TestSaysYes answers everything by itself.
func TestSaysYes(t *testing.T) {
	p := invoice
	p.Yes = true
	out, err := run(t, p, procurement.Flow(procurement.Options{}), strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, out, "as manager> approve\n", "as compliance> approve\n", "as cfo> approve\n", "done order: PO-1", `"ordered":true`)
}

// TestLeavesTheQuestionOpen has nobody who answers.
func TestLeavesTheQuestionOpen(t *testing.T) {
	out, err := run(t, invoice, procurement.Flow(procurement.Options{}), strings.NewReader(""))
	if !errors.Is(err, io.EOF) || strings.Contains(out, "ended") {
		t.Errorf("it returns %v and says\n%s", err, out)
	}
}

// TestPassesOnToTheDeputy has people who are there and say nothing.
func TestPassesOnToTheDeputy(t *testing.T) {
	out, err := run(t, invoice, procurement.Flow(procurement.Options{Patience: time.Minute}), nil)
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, out, "as manager> ", "nobody answered /budget/ask in time", "as deputy-manager> ", "nobody answered /budget/ask-deputy in time", `"why":"no budget"`)
}
