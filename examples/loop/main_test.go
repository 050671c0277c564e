package main

import (
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

var flow = perdure.NewFlow("loop", loop)

const question = "What do 3 crates of 14 apples weigh, at 160 grams each?"

// TestAnswers goes the whole way, and compares the journal with
// testdata/loop.txt: two calls of the loop are all that is in it.
func TestAnswers(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "loop", question)
		if out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || out != "They weigh 6720 grams." {
			t.Errorf("it says %q, %v", out, err)
		}
		e.Golden("t", "testdata/loop.txt")
	})
}

// TestSurvivesACrashAnywhere cuts it at every write.
func TestSurvivesACrashAnywhere(t *testing.T) {
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows: []perdure.Flow{flow},
		Start: []perdure.StartRequest{{Flow: "loop", Input: question}},
		Want:  perdure.Succeeded,
	})
}
