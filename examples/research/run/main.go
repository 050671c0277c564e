// Run answers a question with a report, and asks before it publishes it:
//
//	go run ./examples/research/run
//
// It stops at the question and says how to answer it; then start it again. Kill it
// whenever you like, also with kill -9: it continues where it was, after a kill in
// the middle of a step when the dead process's lease expires, after 3 seconds.
// Everything is kept in research.db; remove research.db* to start over. Published
// reports are in the folder published.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure/examples/internal/program"
	"github.com/perdure/perdure/examples/research"
)

func main() {
	program.Main(research.Flow(research.Options{Pace: program.Pace(), Publish: publish}), research.Question)
}

// publish writes a report into the folder published.
func publish(_ context.Context, r research.Report) (string, error) {
	if err := os.MkdirAll("published", 0o755); err != nil {
		return "", err
	}
	name := filepath.Join("published", strings.ReplaceAll(strings.ToLower(r.Title), " ", "-")+".md")
	return name, os.WriteFile(name, []byte(r.Text), 0o644)
}
