package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
)

// inbox lets a person go through all open asks.
func (a *app) inbox(ctx context.Context, l *link.Link) error {
	if !a.term.Interactive() {
		return exit.Usage(errors.New("name the ask to answer: perdure asks lists them"))
	}
	var all []perdure.AskInfo
	for ask, err := range l.Client.Asks(ctx, api.ListAsks{}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			a.damage([]string{err.Error()})
			break
		}
		if err != nil {
			return err
		}
		all = append(all, ask)
	}
	if len(all) == 0 {
		a.term.Printf("there are no open asks\n")
	}
	some := false
	for i := range all {
		a.term.Printf("%s\n", a.term.Style(terminal.Dim, fmt.Sprintf("ask %d of %d", i+1, len(all))))
		answered, err := a.decide(ctx, l, &all[i])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		some = some || answered
		a.term.Printf("\n")
	}
	if some {
		a.idle(ctx, l)
	}
	return nil
}

// How many lines of an ask's prompt and data are shown at first, so that they fit
// on one screen with the line where a person decides.
const promptLines = 4

// present shows an ask, in full if requested, and returns how many lines are not
// shown.
func (a *app) present(ask *perdure.AskInfo, full bool) (hidden int) {
	spare := a.term.Height() - 12 // the rest is for names and for the line where a person decides
	most := func(n int) int {
		switch {
		case full:
			return 0
		case a.term.Height() == 0:
			return n
		}
		n = max(1, min(n, spare))
		spare -= n
		return n
	}
	lines := safe.Wrap(safe.Line(ask.Prompt), a.term.WrapAt(4))
	a.term.Printf("%s %s\n", a.term.Style(terminal.Amber, "?"), a.term.Style(terminal.Bold, lines[0]))
	if len(lines) > 1 {
		rest, n := a.term.Frame("  ", strings.Join(lines[1:], "\n"), most(promptLines-1))
		hidden = n
		a.term.Printf("%s\n", rest)
	}
	line := func(name, value string) {
		if value != "" {
			a.term.Printf("  %s %s\n", a.term.Style(terminal.Dim, fmt.Sprintf("%-8s", name)), safe.Cut(safe.Line(value), a.term.Room(11)))
		}
	}
	line("ask", render.AskID(ask.ID)+", asked "+a.term.When(ask.Asked))
	line("thread", safe.Name(ask.Thread)+" "+ask.Path)
	line("kind", ask.Kind)
	line("who", strings.Join(ask.Who, ", "))
	if !ask.Expires.IsZero() {
		line("expires", a.term.When(ask.Expires)+" (in "+terminal.Length(max(0, ask.Expires.Sub(a.term.Clock()).Round(time.Second)))+")")
	}
	if full && len(ask.Schema) > 0 {
		line("schema", "")
		a.term.Printf("%s\n", a.term.Framed("  ", render.Value(ask.Schema)))
	} else if ask.Kind != agent.KindCredential {
		line("schema", render.Brief(ask.Schema))
	}
	if tool, args := render.Call(ask.Data); len(args) > 0 {
		line("call", tool)
		text := string(args)
		if !full {
			text = spaces.ReplaceAllStringFunc(render.Compact(args), func(s string) string { return fmt.Sprintf("⟨%d spaces⟩", len(s)) })
		}
		shown, n := a.term.Frame("  ", render.Value(json.RawMessage(text)), most(render.CallLines))
		hidden += n
		a.term.Printf("%s\n", shown)
	}
	return hidden
}

// hidden says that not all of an ask is shown, and how to see the rest.
func (a *app) hidden(lines int, rest string) {
	if lines > 0 {
		a.term.Print("  " + a.term.Style(terminal.Amber, terminal.Count(lines, "line is", "lines are")+" not shown: "+rest) + "\n")
	}
}

// spaces matches runs of spaces that are too long for a person to count.
var spaces = regexp.MustCompile(` {9,}`)

// decided names what a person decides about in a few words that others cannot
// choose: the tool, and a digest of its arguments or of the question.
func decided(ask *perdure.AskInfo) string {
	tool, args := render.Call(ask.Data)
	if len(args) == 0 {
		args, _ = json.Marshal(ask.Prompt)
	}
	sum := sha256.Sum256([]byte(render.Compact(args)))
	if tool = strings.TrimSpace(strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return '?'
		}
		return c
	}, tool)); tool != "" {
		return fmt.Sprintf("%s %x", safe.Cut(tool, 40), sum[:8])
	}
	return fmt.Sprintf("%x", sum[:8])
}

// choice is something that a person can decide.
type choice struct {
	key, label, decision string
}

// decisions holds the decisions that agents offer: what a person types, how it is
// shown, and the flag of answer that makes the decision, if there is one.
var decisions = map[string]struct{ key, label, flag string }{
	agent.DecisionApprove:  {"a", "[a]pprove", "--approve"},
	agent.DecisionEdit:     {"e", "[e]dit", "--edit JSON"},
	agent.DecisionReject:   {"r", "[r]eject", "--reject WHY"},
	agent.DecisionRespond:  {"w", "[w]rite the result", "--respond JSON"},
	agent.DecisionAlways:   {"always", "[always]", ""},
	agent.DecisionProvided: {"p", "[p]rovide the secret", ""},
}

// choices returns what a person can decide about an ask.
func choices(ask *perdure.AskInfo) []choice {
	var all []choice
	for _, d := range ask.Decisions {
		known, ok := decisions[d]
		if !ok {
			known.key, known.label = d, "["+safe.Label(d)+"]"
		}
		all = append(all, choice{known.key, known.label, d})
	}
	switch {
	case len(all) > 0:
	case ask.Want == "boolean":
		all = append(all, choice{"y", "[y]es", "true"}, choice{"n", "[n]o", "false"})
	default:
		all = append(all, choice{"w", "[w]rite an answer", ""})
	}
	return append(all, choice{"s", "[s]kip", ""})
}

// decide shows an ask, lets a person answer it, and reports whether it was
// answered. It returns io.EOF when the input has ended.
func (a *app) decide(ctx context.Context, l *link.Link, ask *perdure.AskInfo) (bool, error) {
	hidden := a.present(ask, false)
	a.hidden(hidden, "[f]ull shows all")
	if ask.Status != perdure.AskOpen && ask.Status != "" {
		return false, &exit.Error{Code: exit.Conflict, Err: errors.New(fate(ask))}
	}
	able := choices(ask)
	if hidden > 0 {
		able = append(able, choice{"f", "[f]ull", ""})
	}
	for {
		line, err := a.term.Ask(ctx, a.question(ask, able))
		if err != nil {
			return false, err
		}
		key, rest, _ := strings.Cut(line, " ")
		i := slices.IndexFunc(able, func(c choice) bool {
			return strings.EqualFold(c.key, key) || c.decision != "" && strings.EqualFold(c.decision, key)
		})
		if i < 0 {
			a.term.Printf("  type one of the letters in brackets\n")
			continue
		}
		switch chosen := able[i]; {
		case chosen.decision == "" && chosen.key == "s":
			return false, nil
		case chosen.decision == "" && chosen.key == "f":
			a.present(ask, true)
			continue
		}
		err = a.settle(ctx, l, ask, able[i], strings.TrimSpace(rest))
		var p *api.Problem
		switch {
		case err == nil:
			a.term.Printf("  %s\n", a.term.Style(terminal.Green, "answered"))
			return true, nil
		case errors.Is(err, perdure.ErrAnswered), errors.Is(err, perdure.ErrAskOver):
			a.term.Printf("  too late: %s\n", safe.Cut(safe.Line(err.Error()), a.term.Room(12)))
			return false, nil
		case errors.As(err, &p) && p.Status < 500 && p.Status != 401, errors.Is(err, errAgain):
			a.term.Printf("%s\n", a.term.Framed("  ", err.Error()))
		default:
			return false, err
		}
	}
}

// question returns the line where a person decides. It repeats what is decided,
// after everything that others have written.
func (a *app) question(ask *perdure.AskInfo, able []choice) string {
	var labels []string
	for _, c := range able {
		labels = append(labels, c.label)
	}
	about, choices := a.term.Style(terminal.Bold, decided(ask)), strings.Join(labels, " ")
	if w := a.term.Width(); w > 0 && safe.Cells(decided(ask)+choices)+7 > w {
		return "  " + about + "\n  " + choices + " > "
	}
	return "  " + about + "  " + choices + " > "
}

// errAgain marks input that the person may correct.
var errAgain = errors.New("that does not work")

// settle answers an ask as a person has chosen. Rest is the text that followed the
// choice.
func (a *app) settle(ctx context.Context, l *link.Link, ask *perdure.AskInfo, c choice, rest string) error {
	r := api.Reply{Decision: c.decision}
	var err error
	switch {
	case c.decision == agent.DecisionProvided:
		return a.give(ctx, l, ask)
	case len(ask.Decisions) == 0 && ask.Want == "boolean":
		r = api.Reply{Value: json.RawMessage(c.decision), Message: rest}
	case c.decision == agent.DecisionReject:
		if rest == "" {
			rest, err = a.term.Ask(ctx, "  why? ")
		}
		r.Message = rest
	case c.decision == agent.DecisionEdit:
		_, args := render.Call(ask.Data)
		var text bytes.Buffer
		if json.Indent(&text, args, "", "  ") != nil {
			text.Write(args)
		}
		rest, err = a.term.Edit(ctx, text.String())
		if err == nil && !json.Valid([]byte(rest)) {
			err = fmt.Errorf("%w: it is not JSON", errAgain)
		}
		r.Value = json.RawMessage(rest)
	case c.decision == agent.DecisionAlways:
		r.Value, err = a.always(ctx, ask, rest)
	case c.key == "w":
		if rest == "" {
			rest, err = a.term.Ask(ctx, "  your answer: ")
		}
		r.Value = fitting(ask, rest)
	default:
		r.Message = rest
	}
	if err != nil {
		return err
	}
	_, err = client.Do(ctx, l.Client, api.AsksAnswer, api.AnswerAsk{OneAsk: api.OneAsk{Ask: ask.ID}, Reply: r})
	return err
}

// always shows what a rule will allow before it is created, and returns the
// pattern that a person typed, or nil for exactly these arguments.
func (a *app) always(ctx context.Context, ask *perdure.AskInfo, typed string) (json.RawMessage, error) {
	var data struct{ Always agent.Rule }
	if err := json.Unmarshal(ask.Data, &data); err != nil {
		return nil, err
	}
	rule, pattern := data.Always, json.RawMessage(nil)
	if typed != "" {
		if pattern = json.RawMessage(typed); !json.Valid(pattern) {
			return nil, fmt.Errorf("%w: a pattern is JSON, such as {\"path\": \"/notes/*\"}; always by itself allows exactly these arguments", errAgain)
		}
		rule.Args = pattern
		rule.Allows = rule.Describe()
	}
	a.term.Printf("  from now on\n%s\n", a.term.Framed("  ", safe.Line(rule.Allows)))
	sure, err := a.term.Ask(ctx, "  type yes to allow that > ")
	if err == nil && !strings.EqualFold(strings.TrimSpace(sure), "yes") {
		err = fmt.Errorf("%w: no rule is made", errAgain)
	}
	return pattern, err
}
