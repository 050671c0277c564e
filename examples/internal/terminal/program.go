// Package terminal runs an example in a terminal: it shows what happens on a
// thread as it happens, and lets the person in front of it answer what is asked.
package terminal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
)

// Program is one run of a flow, in a terminal.
type Program struct {
	Name  string // of the thread
	Flow  string
	Input any
	Store string        // URL
	Yes   bool          // answer yes to everything
	Lease time.Duration // see perdure.Options

	In  io.Reader
	Out io.Writer

	// Ended is called in the end, to show more of the thread.
	Ended func(ctx context.Context, rt *perdure.Runtime, thread string) error
}

// Flags returns a program on the standard input and output, with the flags that
// all examples have.
func Flags(name string) *Program {
	p := &Program{Name: name, Flow: name, In: os.Stdin, Out: os.Stdout}
	flag.StringVar(&p.Store, "store", "sqlite:"+name+".db", "URL of the store")
	flag.BoolVar(&p.Yes, "yes", false, "answer yes to everything that is asked")
	flag.DurationVar(&p.Lease, "lease", 0, "how long the run of a killed process rests; 0 is 3s")
	return p
}

// Main runs the program and ends the process with what came of it.
func (p *Program) Main(flow perdure.Flow) {
	if err := p.Run(context.Background(), flow); err != nil {
		log.Fatal(err)
	}
}

// Run starts the run, or goes on with the one that an earlier process left, and
// returns when it has ended.
func (p *Program) Run(ctx context.Context, flow perdure.Flow) error {
	s, err := store.Open(ctx, p.Store)
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Lease: p.Lease}, flow)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	defer rt.Close()
	run, err := rt.Start(ctx, perdure.StartRequest{Thread: p.Name, Flow: p.Flow, Input: p.Input, Key: p.Name})
	if err != nil {
		return err
	}
	t, err := rt.Get(ctx, run.Thread)
	if err != nil {
		return err
	}
	for _, r := range t.Runs { // as of the same moment as the thread
		if r.ID == run.ID {
			run = r
		}
	}
	if run.Status.Final() {
		return p.end(ctx, rt, run)
	}
	if run.Steps > 0 {
		fmt.Fprintf(p.Out, "-- %d steps are done already, the last one is %s\n", run.Steps, run.Last)
	}

	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	all := make(chan news)
	send := func(n news) bool {
		select {
		case all <- n:
			return true
		case <-working.Done():
			return false
		}
	}
	go follow(working, rt, run.Thread, t.Seq, send)
	go listen(working, rt, run.Thread, send)
	go read(p.In, send)
	go func() { worked <- rt.Work(working) }()
	err = p.watch(ctx, rt, run, all)
	stop()
	return errors.Join(err, <-worked)
}

// news is one thing that happens.
type news struct {
	event *perdure.Event
	delta *perdure.DeltaEvent
	line  *string // that was typed
	eof   bool    // nothing more will be typed
	err   error
}

func follow(ctx context.Context, rt *perdure.Runtime, thread string, after uint64, send func(news) bool) {
	for e, err := range rt.Events(ctx, thread, perdure.EventOptions{After: after}) {
		if !send(news{event: &e, err: err}) {
			return
		}
	}
}

func listen(ctx context.Context, rt *perdure.Runtime, thread string, send func(news) bool) {
	for d, err := range rt.Deltas(ctx, thread) {
		if !send(news{delta: &d, err: err}) {
			return
		}
	}
}

func read(in io.Reader, send func(news) bool) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if line := lines.Text(); !send(news{line: &line}) {
			return
		}
	}
	send(news{eof: true})
}

// watch shows the news until the run has ended. What is asked, and that it has
// ended, is taken from the events too, so that nothing is shown before its time.
func (p *Program) watch(ctx context.Context, rt *perdure.Runtime, run *perdure.Run, all <-chan news) error {
	v := &view{out: p.Out, shown: map[string]string{}}
	d := &desk{Program: p, rt: rt, asked: map[string]bool{}}
	for _, ask := range run.Asks {
		d.asked[ask.Path] = true
	}
	for {
		if err := d.show(ctx, run); err != nil {
			return err
		}
		switch n := <-all; {
		case n.err != nil:
			return n.err
		case n.delta != nil:
			v.delta(n.delta)
		case n.line != nil:
			d.lines = append(d.lines, *n.line)
		case n.eof:
			d.closed = true
		case n.event != nil:
			v.event(n.event)
			switch n.event.Kind {
			case "asked":
				d.asked[n.event.Path] = true
			case "answered", "expired":
				delete(d.asked, n.event.Path)
			case "ended":
				var err error
				if run, err = rt.GetRun(ctx, run.Thread, run.ID); err != nil {
					return err
				}
				return p.end(ctx, rt, run)
			}
		}
	}
}

func (p *Program) end(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
	if run.Status != perdure.Succeeded {
		return fmt.Errorf("the run is %s: %s", run.Status, run.Error)
	}
	var text string
	if json.Unmarshal(run.Output, &text) != nil {
		text = string(run.Output)
	}
	fmt.Fprintf(p.Out, "-- ended after %d steps, resumed %d times\n%s\n", run.Steps, run.Resumes, text)
	if p.Ended == nil {
		return nil
	}
	return p.Ended(ctx, rt, run.Thread)
}
