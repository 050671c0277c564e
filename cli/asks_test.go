package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/store"
)

// asked starts a run that asks, and returns the id of the ask.
func (p *place) asked(thread, flow, input string) string {
	p.t.Helper()
	p.run("", "run", flow, input, "--thread", thread).want(exit.Waiting)
	var page struct{ Asks []perdure.AskInfo }
	r := p.run("", "asks", "--thread", thread, "--json").want(exit.OK)
	if err := json.Unmarshal([]byte(r.out), &page); err != nil || len(page.Asks) != 1 {
		p.t.Fatalf("%v: the asks of %s are %s", err, thread, r.out)
	}
	return page.Asks[0].ID
}

// ended waits for the thread's run and returns its output. On a store it works
// on it.
func (p *place) ended(thread string) string {
	p.t.Helper()
	rt := p.rt
	if rt == nil {
		s, err := store.Open(p.t.Context(), p.flags[1])
		if err != nil {
			p.t.Fatal(err)
		}
		defer s.Close()
		if rt, err = perdure.New(p.t.Context(), s, perdure.Options{}, p.flows...); err != nil {
			p.t.Fatal(err)
		}
		ctx, stop := context.WithCancel(p.t.Context())
		done := make(chan error, 1)
		go func() { done <- rt.Work(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				p.t.Errorf("the worker: %v", err)
			}
		}()
	}
	run, err := rt.WaitEnd(p.t.Context(), thread, "")
	if err != nil {
		p.t.Fatal(err)
	}
	return string(run.Output)
}

func TestAnswerTakesEachDecision(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		want  string // in the output
	}{
		{"approve", []string{"--approve"}, "The tool says: paid."},
		{"edit", []string{"--edit", `{"amount": 7}`}, "changed the arguments"},
		{"reject", []string{"--reject", "too much"}, "too much"},
		{"respond", []string{"--respond", "by hand"}, "The tool says: by hand"},
		{"decision", []string{"--decision", "respond", "--value", `"so"`}, "The tool says: so"},
		{"message", []string{"--decision", "reject", "--message", "never"}, "never"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := served(t)
			ask := p.asked("t", "clerk", "pay 5")
			p.run("", append([]string{"answer", ask}, c.flags...)...).want(exit.OK, "answered", "perdure events t -f")
			if got := p.ended("t"); !strings.Contains(got, c.want) {
				t.Errorf("the output is %s, want %s", got, c.want)
			}
			p.run("", append([]string{"answer", ask}, c.flags...)...).want(exit.OK) // the same again
			p.run("", "show", "t", "--messages").want(exit.OK, c.want)
		})
	}
}

func TestAnswerRefusesWhatDoesNotFit(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "clerk", "pay 5")
		p.run("", "answer", ask).want(exit.BadUsage, "--approve, --edit JSON, --reject WHY, --respond JSON")
		p.run("", "answer").want(exit.BadUsage, "perdure asks")
		p.run("", "answer", "--approve").want(exit.BadUsage, "perdure asks")
		p.run("", "answer", ask, "--approve", "--reject", "no").want(exit.BadUsage, "one of")
		p.run("", "answer", ask, "--edit", `{"amount": "many"}`).want(exit.BadUsage, "amount")
		p.run("", "answer", ask, "--edit", `nonsense`).want(exit.BadUsage)
		p.run("", "answer", ask, "--decision", "shrug").want(exit.BadUsage, "does not accept shrug, only approve")
		p.run("", "answer", ask, "--secret").want(exit.BadUsage, "does not want a secret")
		p.run("", "answer", "nope", "--approve").want(exit.NotFound, "perdure asks")
		plain := p.asked("o", "order", "tea")
		p.run("", "answer", plain, "--edit", "1").want(exit.BadUsage, "--respond JSON")
		p.run("", "answer", plain, "--respond", "perhaps").want(exit.BadUsage)
		p.run("", "answer", plain, "--reject", "no need").want(exit.OK)
		p.run("", "answer", plain, "--approve").want(exit.Conflict, "another answer")
		if got := p.ended("o"); got != `"not bought"` {
			t.Errorf("the output is %s", got)
		}
	})
}

func TestAnAskIsFoundByItsBeginning(t *testing.T) {
	p := served(t)
	one := p.asked("a", "order", "tea")
	thread, own, _ := strings.Cut(one, ".")
	p.run("", "run", "order", "salt", "--thread", "a", "--policy", "beside").want(exit.Waiting)
	p.run("", "answer", thread, "--approve").want(exit.BadUsage, `more than one ask begins with "`+thread+`"`, render.AskID(one))
	if !strings.HasPrefix(own, "-") {
		p.run("", "answer", own[:12], "--approve").want(exit.OK)
	}
}

func TestAPersonDecidesAtTheTerminal(t *testing.T) {
	for _, c := range []struct {
		name, flow, input, typed string
		want                     string // in the output of the run
		shown                    string
	}{
		{"approve", "clerk", "pay 5", "a\n", "The tool says: paid.", "[a]pprove [e]dit [r]eject [w]rite the result [s]kip"},
		{"word", "clerk", "pay 5", "approve\n", "The tool says: paid.", `"amount": 5`},
		{"wrong key first", "clerk", "pay 5", "x\n\na\n", "The tool says: paid.", "letters in brackets"},
		{"reject in a line", "clerk", "pay 5", "r too much\n", "too much", "answered"},
		{"reject", "clerk", "pay 5", "r\ntoo much\n", "too much", "why?"},
		{"write", "clerk", "pay 5", "w\nby hand\n", "by hand", "your answer"},
		{"edit, wrong first", "clerk", "pay 5", "e\ne\n", "changed the arguments", "amount"},
		{"yes", "order", "tea", "y\n", "bought tea", "[y]es [n]o [s]kip"},
		{"no", "order", "tea", "n\n", "not bought", "Buy tea?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := served(t)
			ask := p.asked("t", c.flow, c.input)
			edits := 0
			p.setUp = func(a *app) {
				a.term.Forced = true
				a.term.Editor = func(_ context.Context, text string) (string, error) {
					if edits++; edits == 1 {
						return "nonsense", nil
					}
					return strings.Replace(text, "5", "6", 1), nil
				}
			}
			p.run(c.typed, "answer", ask).want(exit.OK, c.shown)
			p.setUp = nil
			if got := p.ended("t"); !strings.Contains(got, c.want) {
				t.Errorf("the output is %s, want %s", got, c.want)
			}
		})
	}
}

func TestTheInboxIsGoneThrough(t *testing.T) {
	p := served(t)
	p.asked("a", "order", "tea")
	p.asked("b", "order", "milk")
	p.asked("c", "order", "bread")
	p.setUp = func(a *app) { a.term.Forced = true }
	p.run("s\ny\n", "answer").want(exit.OK, "ask 1 of 3", "Buy tea?", "Buy milk?", "ask 3 of 3") // then Ctrl-D
	if got := p.ended("b"); got != `"bought milk"` {
		t.Errorf("the output is %s", got)
	}
	p.setUp = nil
	r := p.run("", "asks").want(exit.OK, "Buy tea?", "Buy bread?")
	if strings.Contains(r.out, "milk") {
		t.Errorf("an ask that is answered is listed:\n%s", r.out)
	}
}

func TestASecretIsReadAndNeverShown(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	p := served(t)
	ask := p.asked("t", "vault", "open")
	p.run("", "answer", ask, "--respond", "s3cret").want(exit.BadUsage, "command line")
	p.run("", "answer", ask).want(exit.BadUsage, "--secret")
	p.run("\n", "answer", ask, "--secret").want(exit.BadUsage, "empty")
	p.setUp = func(a *app) {
		a.term.Forced = true
		a.term.Secret = func(_ context.Context, question string) (string, error) {
			if !strings.Contains(question, "secret") {
				return "", errors.New(question)
			}
			return "s3cret", nil
		}
	}
	r := p.run("p\n", "answer", ask).want(exit.OK, "[p]rovide the secret", "answered")
	p.setUp = nil
	all := r.out + r.err + p.run("", "events", "t", "--json").out + p.run("", "show", "t").out
	if strings.Contains(all, "s3cret") {
		t.Errorf("the secret is shown:\n%s", all)
	}
	if got := p.ended("t"); got != `"opened"` {
		t.Errorf("the output is %s", got)
	}
}

// TestAnAskIsOnOneScreen with the line where a person decides, also on a small one.
func TestAnAskIsOnOneScreen(t *testing.T) {
	p := stored(t)
	id := p.asked("t", "order", strings.Repeat("a very long list of tea ", 40))
	p.setUp = func(a *app) { a.term.Forced, a.term.Columns, a.term.Lines = true, 60, 12 }
	r := p.run("s\n", "answer", id).want(exit.OK, "not shown", "[y]es")
	if n := strings.Count(r.out, "\n"); n > 12 {
		t.Errorf("%d lines:\n%s", n, r.out)
	}
}

func TestAnAskThatIsOverIsFoundByWhatIsShownOfIt(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		ask := p.asked("t", "order", "tea")
		p.run("", "asks", render.AskID(ask)).want(exit.OK, "? Buy tea?", "the ask is open")
		p.run("", "answer", render.AskID(ask), "--approve", "--message", "we are out", "--by", "ada").want(exit.OK)
		for _, id := range []string{ask, render.AskID(ask)} {
			p.run("", "asks", id).want(exit.OK, "? Buy tea?", "the ask is answered by ada: true, we are out")
			p.run("", "answer", id, "--reject", "no").want(exit.Conflict, `was answered by "ada"`, "the answer is true, we are out")
		}
		p.run("", "asks", "none-such").want(exit.NotFound, "lists the open ones")
		p.run("", "asks", "--full").want(exit.BadUsage, "asks ASK --full")
	})
}
