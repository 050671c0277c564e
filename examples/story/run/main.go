// Run writes a story in the terminal:
//
//	go run ./examples/story/run
//
// Kill it whenever you like and start it again: it continues where it was.
// Everything is kept in story.db; remove story.db* to start over. With arguments it
// is a program like perdure, with one flow: see docs/cli.md.
package main

import (
	"github.com/perdure/perdure/examples/internal/program"
	"github.com/perdure/perdure/examples/story"
)

func main() { program.Main(story.Flow(story.Options{Pace: program.Pace()}), story.Topic) }
