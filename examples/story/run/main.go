// Run writes a story in the terminal:
//
//	go run ./examples/story/run
//
// Kill it whenever you like and start it again: it goes on where it was. All that
// it knows is in story.db; remove story.db* to begin anew.
package main

import (
	"flag"
	"time"

	"github.com/perdure/perdure/examples/internal/terminal"
	"github.com/perdure/perdure/examples/story"
)

func main() {
	p := terminal.Flags("story")
	topic := flag.String("topic", story.Topic, "what the story is about")
	pace := flag.Duration("pace", 80*time.Millisecond, "between two pieces of a reply")
	flag.Parse()
	p.Input = *topic
	p.Main(story.Flow(story.Options{Pace: *pace}))
}
