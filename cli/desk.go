package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// inbox lets a person go through all open asks.
func (a *app) inbox(ctx context.Context, l *link) error {
	if !a.interactive() {
		return usage(errors.New("name the ask that is answered: perdure asks lists them"))
	}
	var all []perdure.AskInfo
	for ask, err := range l.Asks(ctx, api.ListAsks{}) {
		if err != nil {
			return err
		}
		all = append(all, ask)
	}
	if len(all) == 0 {
		a.printf("nobody is asked anything\n")
	}
	some := false
	for i := range all {
		a.printf("%s\n", a.style(dim, fmt.Sprintf("ask %d of %d", i+1, len(all))))
		answered, err := a.decide(ctx, l, &all[i])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		some = some || answered
		a.printf("\n")
	}
	if some {
		l.idle(ctx, a)
	}
	return nil
}

// present shows an ask.
func (a *app) present(ask *perdure.AskInfo) {
	a.printf("%s %s\n", a.style(amber, "?"), a.style(bold, indentRest("  ", printable(ask.Prompt))))
	line := func(name, value string) {
		if value != "" {
			a.printf("  %s %s\n", a.style(dim, fmt.Sprintf("%-8s", name)), value)
		}
	}
	line("ask", shortAsk(ask.ID)+", asked "+a.when(ask.Asked))
	line("thread", oneLine(ask.Thread+" "+ask.Path))
	line("kind", oneLine(ask.Kind))
	line("who", oneLine(strings.Join(ask.Who, ", ")))
	if !ask.Expires.IsZero() {
		line("expires", a.when(ask.Expires)+" (in "+length(max(0, ask.Expires.Sub(a.clock()).Round(time.Second)))+")")
	}
	if tool, args := called(ask.Data); len(args) > 0 {
		if tool != "" {
			line("call", oneLine(tool))
		}
		a.printf("%s\n", indent("    ", pretty(args)))
	}
	if len(ask.Schema) > 0 && ask.Kind != agent.KindCredential {
		line("schema", cut(brief(ask.Schema), a.short(11)))
	}
}

// called returns the tool and the arguments that an ask is about, or else all
// that it shows.
func called(data json.RawMessage) (tool string, args json.RawMessage) {
	var call struct {
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"args"`
	}
	if json.Unmarshal(data, &call) == nil && call.Tool != "" && len(call.Args) > 0 {
		return call.Tool, call.Args
	}
	return "", data
}

// choice is something that a person can decide.
type choice struct {
	key, label, decision string
}

// choices are what can be decided about an ask.
func choices(ask *perdure.AskInfo) []choice {
	var all []choice
	for _, d := range ask.Decisions {
		switch d {
		case agent.DecisionApprove:
			all = append(all, choice{"a", "[a]pprove", d})
		case agent.DecisionEdit:
			all = append(all, choice{"e", "[e]dit", d})
		case agent.DecisionReject:
			all = append(all, choice{"r", "[r]eject", d})
		case agent.DecisionRespond:
			all = append(all, choice{"w", "[w]rite the result", d})
		case agent.DecisionAlways:
			all = append(all, choice{"always", "[always]", d})
		case agent.DecisionProvided:
			all = append(all, choice{"p", "[p]rovide the secret", d})
		default:
			all = append(all, choice{d, "[" + oneLine(d) + "]", d})
		}
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

// decide shows an ask and lets a person answer it, and reports whether it was
// answered. It is io.EOF when nobody is there any more.
func (a *app) decide(ctx context.Context, l *link, ask *perdure.AskInfo) (bool, error) {
	a.present(ask)
	if ask.Status != perdure.AskOpen && ask.Status != "" {
		return false, &exitError{exitConflict, fmt.Errorf("the ask is %s", ask.Status)}
	}
	all := choices(ask)
	var labels []string
	for _, c := range all {
		labels = append(labels, c.label)
	}
	for {
		line, err := a.ask(ctx, "  "+strings.Join(labels, " ")+" > ")
		if err != nil {
			return false, err
		}
		key, rest, _ := strings.Cut(line, " ")
		i := slices.IndexFunc(all, func(c choice) bool {
			return strings.EqualFold(c.key, key) || c.decision != "" && strings.EqualFold(c.decision, key)
		})
		if i < 0 {
			a.printf("  type one of the letters in brackets\n")
			continue
		}
		if all[i].key == "s" {
			return false, nil
		}
		err = a.settle(ctx, l, ask, all[i], strings.TrimSpace(rest))
		var p *api.Problem
		switch {
		case err == nil:
			a.printf("  %s\n", a.style(green, "answered"))
			return true, nil
		case errors.Is(err, perdure.ErrAnswered), errors.Is(err, perdure.ErrAskOver):
			a.printf("  too late: %s\n", oneLine(err.Error()))
			return false, nil
		case errors.As(err, &p) && p.Status < 500 && p.Status != 401, errors.Is(err, errAgain):
			a.printf("  %s\n", oneLine(err.Error()))
		default:
			return false, err
		}
	}
}

// errAgain is wrong, and can be typed again.
var errAgain = errors.New("that cannot be")

// settle answers an ask as a person has chosen. Rest is what stood behind the
// choice.
func (a *app) settle(ctx context.Context, l *link, ask *perdure.AskInfo, c choice, rest string) error {
	r := api.Reply{Decision: c.decision}
	var err error
	switch {
	case c.decision == agent.DecisionProvided:
		return a.give(ctx, l, ask)
	case len(ask.Decisions) == 0 && ask.Want == "boolean":
		r = api.Reply{Value: json.RawMessage(c.decision), Message: rest}
	case c.decision == agent.DecisionReject:
		if rest == "" {
			rest, err = a.ask(ctx, "  why? ")
		}
		r.Message = rest
	case c.decision == agent.DecisionEdit:
		_, args := called(ask.Data)
		var text bytes.Buffer
		if json.Indent(&text, args, "", "  ") != nil {
			text.Write(args)
		}
		rest, err = a.edit(ctx, text.String())
		if err == nil && !json.Valid([]byte(rest)) {
			err = fmt.Errorf("%w: it is not JSON", errAgain)
		}
		r.Value = json.RawMessage(rest)
	case c.key == "w":
		if rest == "" {
			rest, err = a.ask(ctx, "  your answer: ")
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
