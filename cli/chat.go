package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm"
	"github.com/spf13/cobra"
)

// recalled is how many messages of an earlier conversation are shown.
const recalled = 6

func chatCommand(a *app) *cobra.Command {
	var thread, user string
	var files []string
	c := &cobra.Command{
		Use:   "chat FLOW",
		Short: "talk to a flow, line by line",
		Long: `Talk to a flow: each line is the input of a run on one thread, and replies are shown
as they arrive. You answer its questions right away. Ctrl-D ends the conversation;
continue it later with --thread.`,
		Example: "  perdure chat story\n  perdure chat story --thread evening",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if a.term.JSON {
				return exit.Usage(errors.New("chat is for people; use run --json"))
			}
			a.conn.Begin = slices.Contains(a.flowNames(), args[0])
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				return a.chat(ctx, l, args[0], thread, user, files)
			})
		},
	}
	c.Flags().StringVar(&thread, "thread", "", "continue this thread, or create it")
	c.Flags().StringVar(&user, "user", "", "owner of a new thread; by default you")
	c.Flags().StringArrayVar(&files, "attach", nil, "image or file for the first line; may be repeated")
	return c
}

// chat is a conversation on a thread.
func (a *app) chat(ctx context.Context, l *link.Link, flow, thread, user string, files []string) error {
	switch flows, err := l.Client.Flows(ctx); {
	case errors.Is(err, api.ErrScope): // it may not ask, but talk
	case err != nil:
		return err
	case !slices.Contains(flows, flow):
		return a.explain(fmt.Errorf("%w: %q; there are %s", perdure.ErrNoFlow, flow, strings.Join(flows, ", ")))
	}
	stop := l.Work(ctx)
	defer stop()
	if thread != "" {
		if err := a.recall(ctx, l, thread); err != nil {
			return err
		}
	}
	defer func() {
		if thread != "" {
			a.hint("continue with %s", a.command("chat", "--thread "+safe.Quote(thread), flow))
		}
	}()
	prompt := ""
	if a.term.Interactive() {
		prompt = a.term.Style(terminal.Blue, "> ")
	}
	for {
		line, err := a.term.Ask(ctx, prompt)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if line == "" {
			continue
		}
		input, _ := json.Marshal(line)
		q := perdure.StartRequest{Flow: flow, Thread: thread, User: user, Policy: perdure.Enqueue, Input: json.RawMessage(input)}
		if err := attach(ctx, l, files, &q); err != nil {
			return err
		}
		files = nil
		run, err := l.Client.Start(ctx, q)
		if err == nil {
			thread = run.Thread
			if err = a.turn(ctx, l, run); errors.Is(err, io.EOF) {
				break // the person has gone
			}
		} else {
			err = a.explain(err)
		}
		if err != nil {
			if ctx.Err() != nil && l.Runtime != nil { // also if a run has begun that is not known here
				a.hint("handing the run over to the next worker; Ctrl-C ends this at once")
			}
			return err
		}
	}
	return stop()
}

// recall shows the end of an earlier conversation, and lets a person answer its
// open asks.
func (a *app) recall(ctx context.Context, l *link.Link, thread string) error {
	t, err := l.Client.GetPage(ctx, thread, perdure.RunPage{Limit: 1}) // and all that have not ended
	if errors.Is(err, perdure.ErrNoThread) {
		return nil // it is new
	}
	if err != nil {
		return err
	}
	list, err := client.Do(ctx, l.Client, api.MessagesList, api.AtThread{Thread: thread})
	if err != nil {
		return err
	}
	var said []string
	for i := range list.Messages {
		m := &list.Messages[i].Message
		switch text := m.Text(); {
		case text == "":
		case m.Role == llm.RoleUser:
			said = append(said, a.term.Framed("> ", text))
		case m.Role == llm.RoleAssistant:
			said = append(said, a.term.Framed("", text))
		}
	}
	for _, text := range said[max(0, len(said)-recalled):] {
		a.term.Printf("%s\n", text)
	}
	for _, r := range t.Runs {
		if !r.Status.Final() && len(r.Asks) > 0 {
			if err := a.turn(ctx, l, r); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
	return nil
}

// turn shows a run until it ends, and lets a person answer what it asks.
func (a *app) turn(ctx context.Context, l *link.Link, run *perdure.Run) error {
	v := render.NewView(a.term, true)
	v.Screen.Out = a.term.Out
	v.Screen.Live = a.term.Live(a.term.Out)
	for {
		done, err := a.watch(ctx, l, run, v)
		if err != nil {
			return err
		}
		switch {
		case done.Status == perdure.Succeeded:
			if text := strings.TrimSpace(render.Value(done.Output)); text != strings.TrimSpace(v.Last) && given(done.Output) {
				a.term.Printf("%s\n", a.term.Framed("", text))
			}
			return nil
		case len(done.Asks) == 0 || done.Status.Final():
			a.hint("%s", a.message(a.finish(ctx, l, done, false)))
			return nil
		}
		skipped := true
		for i := range done.Asks {
			answered, err := a.decide(ctx, l, &done.Asks[i])
			if err != nil {
				return err
			}
			skipped = skipped && !answered
		}
		if skipped {
			a.hint("the run waits; answer later with %s", a.command("answer", ""))
			return nil
		}
		next := *run // what was shown is not shown again
		next.Seq, run = v.Seq+1, &next
	}
}
