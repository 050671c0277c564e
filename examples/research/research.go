// Package research answers a question with a report: it plans, searches, reads
// pages, writes the report into a file and publishes it if a person agrees.
//
//	go run ./examples/research/run
//
// It is one agent with a few tools. Its searches run at the same time, its todos
// and its file are in the state of the thread, and each reply and each call is a
// step. So it can be killed at any moment, also while a reply comes in or while
// one search of three is done, and goes on from there.
//
// The web is a handful of pages in this package, and the model is a script, so
// that it runs without a network and is the same each time.
package research

import (
	"context"
	_ "embed"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/examples/internal/pace"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

//go:embed script.yaml
var lines []byte

// Question is the one that the script can answer.
const Question = "How can a cache be kept from serving stale data?"

// Options of the flow. The zero value is ready to use.
type Options struct {
	Model llm.Model     // nil is a script, which needs no network
	Pace  time.Duration // between two pieces of a reply; tools take some of them

	// Publish makes a report public and says where it is. It may be called
	// again after a crash. Nil publishes nothing.
	Publish func(ctx context.Context, r Report) (where string, err error)
}

// Report is what is published.
type Report struct{ Title, Text string }

// Flow returns the flow "research". Its input is a question, its output what the
// agent says in the end; the report is the file /report.md of the thread.
func Flow(o Options) perdure.Flow { return agent.NewFlow("research", Agent(o)) }

// Agent returns the agent that the flow is made of, for use in others.
func Agent(o Options) agent.Agent {
	if o.Model == nil {
		o.Model = script.Must(script.Parse("research/script.yaml", lines))
	}
	files := files.State()
	return agent.New("researcher", pace.Model(o.Model, o.Pace), agent.Options{
		Instruction: "You are a researcher. Plan with write_todos. Search, read what looks useful, and write a report with its sources into /report.md. Then publish it.",
		Files:       files,
		Tools: append(agent.TodoTools(),
			searchTool(o.Pace),
			readTool(o.Pace),
			publishTool(files, o.Publish),
		),
	})
}
