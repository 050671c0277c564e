// Run answers a question with a report, and asks before it publishes it:
//
//	go run ./examples/research/run
//
// Kill it whenever you like, also with kill -9, and start it again: it goes on
// where it was. After a kill in the middle of a step it first waits until the
// lease of the dead process is over, 3 seconds. All that it knows is in
// research.db; remove research.db* to begin anew. Published reports are in the
// folder published.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/examples/internal/terminal"
	"github.com/perdure/perdure/examples/research"
)

func main() {
	p := terminal.Flags("research")
	question := flag.String("question", research.Question, "what to find out")
	pace := flag.Duration("pace", 80*time.Millisecond, "between two pieces of a reply")
	folder := flag.String("published", "published", "folder for published reports")
	flag.Parse()
	p.Input = *question
	p.Ended = func(ctx context.Context, rt *perdure.Runtime, thread string) error { return list(ctx, p, rt, thread) }
	p.Main(research.Flow(research.Options{Pace: *pace, Publish: func(_ context.Context, r research.Report) (string, error) {
		name := filepath.Join(*folder, strings.ReplaceAll(strings.ToLower(r.Title), " ", "-")+".md")
		if err := os.MkdirAll(*folder, 0o755); err != nil {
			return "", err
		}
		return name, os.WriteFile(name, []byte(r.Text), 0o644)
	}}))
}

// list shows what the thread has in the end: its todos and its files.
func list(ctx context.Context, p *terminal.Program, rt *perdure.Runtime, thread string) error {
	at, err := rt.StateAt(ctx, thread, 0)
	if err != nil {
		return err
	}
	todos, err := agent.TodosAt(at.State)
	if err != nil {
		return err
	}
	for _, t := range todos {
		fmt.Fprintf(p.Out, "-- todo %s: %s\n", t.ID, t.Status)
	}
	files, err := files.At(at.State)
	for _, f := range files {
		fmt.Fprintf(p.Out, "-- file %s, %d bytes\n", f.Path, len(f.Text))
	}
	return err
}
