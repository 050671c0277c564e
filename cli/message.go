package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
)

// message is what a person reads of an error: what happened, and what to do.
func (a *app) message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	text := strings.TrimSpace(err.Error())
	for _, part := range []string{"perdure: ", "api: ", "client: ", "agent: "} {
		text = strings.ReplaceAll(strings.TrimPrefix(text, part), ": "+part, ": ")
	}
	next := ""
	for _, h := range advice {
		switch {
		case !errors.Is(err, h.err):
			continue
		case h.verb == "":
			next = h.do
		default:
			next = fmt.Sprintf(h.do, a.command(h.verb, "", h.args...))
		}
		break
	}
	var coded *exit.Error
	if errors.As(err, &coded) && coded.Next != "" {
		next = coded.Next
	}
	return a.term.Paragraph(a.shellName()+": ", a.named(text), a.named(next))
}

// advice is what helps against errors, where they do not say it themselves.
var advice = []struct {
	err  error
	do   string
	verb string
	args []string
}{
	{api.ErrUnauthorized, "give one with --token or $PERDURE_TOKEN (perdure token create makes them), together with --server or $PERDURE_SERVER", "", nil},
	{perdure.ErrPinned, "--dependents erases them too", "", nil},
	{perdure.ErrNoThread, "%s lists the threads", "threads", nil},
	{perdure.ErrNoAsk, "%s lists the open ones; a closed one is found by its whole id only", "asks", nil},
	{perdure.ErrRunNotFound, "%s lists the runs", "show", []string{"THREAD"}},
}
