package story_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/examples/story"
	"github.com/perdure/perdure/perduretest"
)

const (
	sad = "On a rock far out lived a kite. Each evening it climbed the stairs, one hundred and twelve of them, and lit the lamp, and each night the ships went by, and nobody came."
	end = "After that it climbed the stairs humming."
)

// TestWritesAgainWhenTheToneIsNegative goes the whole way: two rounds of the
// loop, both checks, and the writer again.
func TestWritesAgainWhenTheToneIsNegative(t *testing.T) {
	flow := story.Flow(story.Options{Pace: 100 * time.Millisecond})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "story", "a kite")
		run := e.Wait("t", perdure.Succeeded)
		if text, err := perdure.Output[string](run); err != nil || !strings.HasSuffix(text, end) {
			t.Errorf("the story is %q, %v", text, err)
		}
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		records, err := agent.Transcript(at.State)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]int{}
		for _, r := range records {
			if r.Usage != nil {
				said[r.Agent]++
			}
			if r.Agent == "reviser" && r.Usage != nil && r.Message.Text() != sad {
				t.Errorf("the reviser made it %q", r.Message.Text())
			}
		}
		if said["writer"] != 2 || said["critic"] != 3 || said["reviser"] != 1 || said["grammar"] != 1 || said["judge"] != 1 {
			t.Errorf("replies by agent: %v", said)
		}
	})
}

// TestSurvivesACrashAnywhere cuts it at every write.
func TestSurvivesACrashAnywhere(t *testing.T) {
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{story.Flow(story.Options{})},
		Start: []perdure.StartRequest{{Flow: "story", Input: story.Topic}},
		Want:  perdure.Succeeded,
	})
}
