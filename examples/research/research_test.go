package research_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/perduretest"
)

var update = flag.Bool("update", false, "accept the transcript as it is")

// told returns the transcript of a thread, for people.
func told(records []agent.Record) string {
	var b strings.Builder
	for _, r := range records {
		for _, p := range r.Message.Parts {
			switch {
			case p.Call != nil:
				fmt.Fprintf(&b, "  calls %s %s\n", p.Call.Name, p.Call.Args)
			case p.Result != nil:
				fmt.Fprintf(&b, "  %s returns\n    %s\n", p.Result.Name, strings.ReplaceAll(p.Result.Text, "\n", "\n    "))
			default:
				fmt.Fprintf(&b, "%s: %s\n", r.Message.Role, p.Text)
			}
		}
	}
	return b.String()
}

// state returns the state of a thread as it is now.
func state(t *testing.T, rt *perdure.Runtime, thread string) *perdure.Checkpoint {
	t.Helper()
	at, err := rt.StateAt(t.Context(), thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestWritesAndPublishesAReport goes the whole way, and compares all that was
// said with testdata/transcript.txt.
func TestWritesAndPublishesAReport(t *testing.T) {
	var published []research.Report
	flow := research.Flow(research.Options{Pace: 50 * time.Millisecond, Publish: func(_ context.Context, r research.Report) (string, error) {
		published = append(published, r)
		return "a wall", nil
	}})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "research", research.Question)
		run := e.Wait("t", perdure.Suspended)
		if len(published) > 0 || len(run.Asks) != 1 || run.Asks[0].Kind != agent.KindApproval {
			t.Fatalf("published %v before it was approved; it asks %+v", published, run.Asks)
		}
		e.Advance(72 * time.Hour)
		e.Restart()
		e.Answer("t", run.Asks[0].Path, perdure.Answer{Decision: agent.DecisionApprove, By: "editor"})
		out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if err != nil || !strings.HasPrefix(out, "Done. ") {
			t.Errorf("it says %q, %v", out, err)
		}

		at := state(t, e.Runtime(), "t")
		files, err := files.At(at.State)
		if err != nil || len(files) != 1 || files[0].Path != "/report.md" {
			t.Fatalf("its files are %+v, %v", files, err)
		}
		if diff := cmp.Diff([]research.Report{{Title: "Keeping a cache fresh", Text: files[0].Text}}, published); diff != "" {
			t.Errorf("what is published is not the file: %s", diff)
		}
		todos, err := agent.TodosAt(at.State)
		if err != nil || len(todos) != 4 {
			t.Errorf("its todos are %v, %v", todos, err)
		}
		for _, todo := range todos {
			if todo.Status != agent.TodoCompleted {
				t.Errorf("todo %s is %s in the end", todo.ID, todo.Status)
			}
		}

		records, err := agent.Transcript(at.State)
		if err != nil {
			t.Fatal(err)
		}
		const file = "testdata/transcript.txt"
		if *update {
			if err := os.WriteFile(file, []byte(told(records)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), told(records)); diff != "" {
			t.Errorf("%s is another, accept it with -update: %s", file, diff)
		}
	})
}

// TestKeepsTheReportThatNobodyWants rejects the publication.
func TestKeepsTheReportThatNobodyWants(t *testing.T) {
	flow := research.Flow(research.Options{Publish: func(context.Context, research.Report) (string, error) {
		t.Error("it is published")
		return "", nil
	}})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "research", research.Question)
		run := e.Wait("t", perdure.Suspended)
		e.Answer("t", run.Asks[0].Path, perdure.Answer{Decision: agent.DecisionReject, Message: "Too short."})
		out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if err != nil || out != "I leave it unpublished. The report stays in /report.md." {
			t.Errorf("it says %q, %v", out, err)
		}
		if files, err := files.At(state(t, e.Runtime(), "t").State); err != nil || len(files) != 1 {
			t.Errorf("its files are %v, %v", files, err)
		}
	})
}

// TestTakesARemarkInBetween steers it at many moments, at last while it waits
// for the approval: it finds back to its work, and publishes once.
func TestTakesARemarkInBetween(t *testing.T) {
	for after := 10 * time.Second; after <= 4*time.Minute; after += 10 * time.Second {
		published := 0
		flow := research.Flow(research.Options{Pace: time.Second, Publish: func(context.Context, research.Report) (string, error) {
			published++
			return "a wall", nil
		}})
		perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "research", research.Question)
			e.Advance(after)
			if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "research", Input: "Do not make it long.", Policy: perdure.Steer}); err != nil {
				t.Fatal(err)
			}
			run := e.Wait("t", perdure.Suspended)
			e.Answer("t", run.Asks[0].Path, perdure.Answer{Decision: agent.DecisionApprove})
			out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
			if err != nil || !strings.HasPrefix(out, "Done. ") || published != 1 {
				t.Errorf("after %v: it says %q, %v, and has published %d reports", after, out, err, published)
			}
			records, err := agent.Transcript(state(t, e.Runtime(), "t").State)
			if err != nil || !strings.Contains(told(records), "user: Do not make it long.\nassistant: ") {
				t.Errorf("after %v: the remark is not heard (%v) in\n%s", after, err, told(records))
			}
		})
	}
}

// TestSaysWhatItCannotAnswer asks for something that the script does not know.
func TestSaysWhatItCannotAnswer(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{research.Flow(research.Options{})}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "research", "Why is the sky blue?")
		out, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if err != nil || !strings.HasSuffix(out, research.Question) {
			t.Errorf("it says %q, %v", out, err)
		}
	})
}

// written is when the report was written, which a crash makes later.
var written = regexp.MustCompile(`"(created|modified)":"[^"]*"`)

// TestSurvivesACrashAnywhere cuts it at every write.
func TestSurvivesACrashAnywhere(t *testing.T) {
	var fx perduretest.Effects
	flow := research.Flow(research.Options{Pace: time.Millisecond, Publish: func(ctx context.Context, _ research.Report) (string, error) {
		fx.Count(ctx, "publish")
		return "a wall", nil
	}})
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows:   []perdure.Flow{flow},
		Start:   []perdure.StartRequest{{Flow: "research", Input: research.Question}},
		Effects: &fx,
		Want:    perdure.Succeeded,
		Same:    func(text string) string { return written.ReplaceAllString(text, "") },
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			for _, a := range run.Asks {
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Answer: perdure.Answer{Decision: agent.DecisionApprove}}); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
