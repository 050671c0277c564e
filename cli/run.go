package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

// runFlags say how to start a run, and what to show of it.
type runFlags struct {
	watch, detach, noWork bool
	attach                []string // files
	budget, metadata      texts
	q                     perdure.StartRequest
}

func runCommand(a *app) *cobra.Command {
	f := runFlags{budget: texts{kind: "UNIT=N"}, metadata: texts{kind: "NAME=VALUE"}}
	c := &cobra.Command{
		Use:   "run FLOW [INPUT]",
		Short: "start a run and wait until it ends or needs someone",
		Long: `Start a run of a flow and wait for it. The input is JSON or text; - reads it from
the standard input. The output goes to the standard output, progress to the
standard error.

The run does not depend on this command: it continues if the command is interrupted.
On a store (--store), this command acts as a worker while it waits.

The exit code is 0 if the run succeeded, 1 if it failed, and 4 if it waits for an
answer or a signal.`,
		Example: "  perdure run research \"How can a cache be kept fresh?\"\n  perdure run procurement - --thread chairs --user ada < invoice.txt\n  perdure run research '\"a text as JSON\"' --detach\n  perdure run clerk \"What does this cost?\" --attach receipt.png\n  perdure run story --watch --json | jq -c .kind",
		Args:    arguments(1, 2),
	}
	flags := c.Flags()
	flags.StringVar(&f.q.Thread, "thread", "", "id of the thread, which is created if needed; by default a new one")
	flags.StringVar(&f.q.Title, "title", "", "title of a new thread")
	flags.StringVar(&f.q.User, "user", "", "owner of a new thread; by default you")
	flags.Var(&f.metadata, "metadata", "metadata of a new thread; may be repeated")
	flags.StringVar((*string)(&f.q.Policy), "policy", "", "what to do if the thread is busy: enqueue (default), reject, interrupt, steer, beside")
	flags.StringVar(&f.q.Key, "key", "", "idempotency key: the same key gives the same run")
	flags.Var(&f.budget, "budget", "what the run may spend; may be repeated")
	flags.StringArrayVar(&f.attach, "attach", nil, "image or file for the input, which is then a text or a list of parts; may be repeated")
	flags.BoolVar(&f.watch, "watch", false, "show progress live (the default in a terminal)")
	flags.BoolVar(&f.detach, "detach", false, "do not wait")
	flags.BoolVar(&f.noWork, "no-work", false, "with --store: leave the work to other processes")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.fill(a, args); err != nil {
			return err
		}
		if flags.Changed("key") && f.q.Key == "" {
			return exit.Usage(errors.New("--key is empty; give a text, or leave it out"))
		}
		if f.detach && f.watch {
			return exit.Usage(errors.New("give --watch or --detach, not both"))
		}
		if !flags.Changed("watch") {
			f.watch = a.term.Live(a.term.Err)
		}
		a.conn.Begin = slices.Contains(a.flowNames(), f.q.Flow)
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.start(ctx, l, &f) })
	}
	return c
}

// fill fills in the request.
func (f *runFlags) fill(a *app, args []string) error {
	f.q.Flow = args[0]
	if len(args) > 1 {
		input, err := a.value(args[1])
		if err != nil {
			return err
		}
		f.q.Input = input
	}
	var in api.Start
	for _, field := range api.RunsNew.Fields() {
		given := map[string]*texts{"budget": &f.budget, "metadata": &f.metadata}[field.Key]
		if given == nil || len(given.all) == 0 {
			continue
		}
		if err := setField(field, reflect.ValueOf(&in).Elem(), given.all); err != nil {
			return exit.Usage(fmt.Errorf("--%s: %w", field.Key, err))
		}
	}
	f.q.Budget, f.q.Metadata = in.Budget, in.Metadata
	return nil
}

// start starts a run and waits for it.
func (a *app) start(ctx context.Context, l *link.Link, f *runFlags) error {
	if err := attach(ctx, l, f.attach, &f.q); err != nil {
		return err
	}
	run, err := l.Client.Start(ctx, f.q)
	if err != nil {
		return a.explain(err)
	}
	thread := run.Thread
	if f.detach {
		if a.term.JSON {
			return a.term.PrintJSON(run)
		}
		a.term.PrintName(run.Thread)
		a.hint("run %s is %s; look at it with %s", safe.Label(run.ID), safe.Label(string(run.Status)), a.command("show", "", run.Thread))
		a.idle(ctx, l, run)
		return nil
	}
	a.hint("thread %s, run %s", safe.Label(run.Thread), safe.Label(run.ID))
	stop := func() error { return nil }
	if l.Runtime != nil && !f.noWork {
		stop = l.Work(ctx)
	} else if !run.Status.Final() {
		a.idle(ctx, l, run)
	}
	defer stop()
	var done *api.Done
	if !run.Steering && (f.watch || !a.term.JSON) {
		v := render.NewView(a.term, false)
		if !f.watch {
			v.Quiet, v.Screen.Live = true, false
		}
		done, err = a.watch(ctx, l, run, v)
	} else if run, err = l.Client.Wait(ctx, run.Thread, run.ID); err == nil {
		done = &api.Done{Thread: run.Thread, Run: run.ID, Status: run.Status, Output: run.Output, Error: run.Error, Spent: run.Spent, Asks: run.Asks}
		if a.term.JSON {
			err = a.term.PrintJSON(run)
		}
	}
	if ctx.Err() != nil {
		a.hint("the run does not depend on this command; follow it with %s", a.command("events", "-f", thread))
		if l.Runtime != nil && !f.noWork {
			a.hint("it continues when a worker is alive: %s", a.command("worker", ""))
		}
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return errors.Join(a.finish(ctx, l, done, !f.watch), stop())
}

// explain adds what to do to an error of starting a run.
func (a *app) explain(err error) error {
	if errors.Is(err, perdure.ErrNoFlow) {
		return &exit.Error{Code: exit.NotFound, Err: err}
	}
	if busy, ok := errors.AsType[*perdure.BusyError](err); ok {
		return &exit.Error{Code: exit.Conflict, Err: err, Next: "queue the run with --policy enqueue, or look at the thread with " + a.command("show", "", busy.Thread)}
	}
	return err
}

// watch shows a run until it ends or waits for someone.
func (a *app) watch(ctx context.Context, l *link.Link, run *perdure.Run, v *render.View) (*api.Done, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type news struct {
		u   client.Update
		err error
	}
	all := make(chan news)
	go func() {
		defer close(all)
		for u, err := range l.Client.Follow(ctx, run.Thread, client.FollowOptions{Run: run.ID, Wait: true}) {
			select {
			case all <- news{u, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var tick <-chan time.Time
	if v.Screen.Live {
		t := time.NewTicker(120 * time.Millisecond)
		defer t.Stop()
		tick = t.C
	}
	defer v.Screen.Clear()
	ahead := a.aheadOf(ctx, l, run)
	for {
		select {
		case text := <-ahead:
			if !a.term.JSON {
				v.Waits = text
				v.Screen.Print("… " + text) // in one piece, for the command in it
			}
		case <-tick:
			v.Draw()
		case n, ok := <-all:
			switch {
			case !ok:
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return nil, errors.New("the stream of the run ended before the run")
			case n.err != nil:
				return nil, n.err
			case a.term.JSON:
				if err := a.printUpdate(n.u); err != nil {
					return nil, err
				}
			case v.Update(n.u):
				if s, err := client.Do(ctx, l.Client, api.StateGet, api.AtThread{Thread: run.Thread}); err == nil {
					v.Todos = s.Todos
				}
			}
			if n.u.Done != nil {
				return n.u.Done, nil
			}
		}
	}
}

// How often to look at the run ahead of a queued one: soon, and then less and less
// often.
const (
	aheadSoon   = 500 * time.Millisecond
	aheadSeldom = 30 * time.Second
)

// aheadOf says, once, what a queued run waits for if the run ahead of it on the
// thread waits for something from outside: otherwise nobody would look there.
func (a *app) aheadOf(ctx context.Context, l *link.Link, run *perdure.Run) <-chan string {
	told := make(chan string, 1)
	if run.Status != perdure.Queued {
		return told
	}
	go func() {
		for pause := aheadSoon; ; pause = min(2*pause, aheadSeldom) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			t, err := l.Client.GetPage(ctx, run.Thread, perdure.RunPage{Limit: 1}) // and all that have not ended
			if err != nil {
				continue
			}
			for _, r := range t.Runs {
				if r.ID == run.ID && r.Status != perdure.Queued {
					return
				}
				if r.ID == run.ID {
					break
				}
				if text := a.stands(r); text != "" {
					told <- "it waits its turn: " + text
					return
				}
			}
		}
	}()
	return told
}

// stands says why a run does not continue by itself, and what to do; "" if it does.
func (a *app) stands(r *perdure.Run) string {
	switch {
	case r.Status == perdure.Paused:
		return fmt.Sprintf("run %s is paused; continue it with %s", safe.Label(r.ID), a.command("resume", "", r.Thread, r.ID))
	case r.Status == perdure.Blocked, r.Status == perdure.Quarantined:
		return fmt.Sprintf("run %s is %s; see %s", safe.Label(r.ID), r.Status, a.command("show", "", r.Thread, r.ID))
	case r.Status != perdure.Suspended:
		return ""
	case len(r.Asks) > 0:
		what, how := a.waitsFor(&r.Asks[0])
		return what + "; " + how
	}
	for _, w := range r.Waits {
		if w.Kind == "signal" && w.Signal != "" {
			return fmt.Sprintf("run %s waits for a signal; send it with %s", safe.Label(r.ID), a.command("signal", "", r.Thread, w.Signal))
		}
	}
	return ""
}

// finish prints the outcome of a run, and ends the command accordingly. It shows
// open asks unless they have been shown.
func (a *app) finish(ctx context.Context, l *link.Link, d *api.Done, show bool) error {
	switch d.Status {
	case perdure.Succeeded:
		if !a.term.JSON && given(d.Output) {
			a.term.PrintValue(render.Value(d.Output))
		}
		return nil
	case perdure.Failed:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("run %s failed: %s", safe.Label(d.Run), d.Error), Next: "continue it with " + a.command("retry", "", d.Thread, d.Run)}
	case perdure.Cancelled:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("run %s was cancelled", safe.Label(d.Run))}
	case perdure.Blocked, perdure.Quarantined:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("run %s is %s", safe.Label(d.Run), safe.Label(string(d.Status))), Next: "see " + a.command("show", "", d.Thread, d.Run)}
	case perdure.Paused:
		return &exit.Error{Code: exit.Waiting, Err: fmt.Errorf("run %s is paused", safe.Label(d.Run)), Next: "continue it with " + a.command("resume", "", d.Thread, d.Run)}
	}
	if len(d.Asks) == 0 {
		if r, err := l.Client.GetRun(ctx, d.Thread, d.Run); err == nil {
			if what, how, ok := strings.Cut(a.stands(r), "; "); ok {
				return &exit.Error{Code: exit.Waiting, Err: errors.New(what), Next: how}
			}
		}
		return &exit.Error{Code: exit.Waiting, Err: fmt.Errorf("run %s waits", safe.Label(d.Run)), Next: "see " + a.command("show", "", d.Thread, d.Run)}
	}
	for i := range d.Asks {
		if show && !a.term.JSON {
			a.hidden(a.present(&d.Asks[i], false), a.command("asks", "--full", render.AskID(d.Asks[i].ID)))
		}
	}
	for i := range d.Asks[1:] {
		what, how := a.waitsFor(&d.Asks[i+1])
		a.hint("%s; %s", what, how)
	}
	what, how := a.waitsFor(&d.Asks[0])
	return &exit.Error{Code: exit.Waiting, Err: errors.New(what), Next: how}
}

// given reports whether there is a value.
func given(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }
