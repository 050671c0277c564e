package perduretest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// Replay runs the flows of today against the runs of a file that
// [perdure.Runtime.Export] wrote, for example one of yesterday's threads in
// production, and fails the test where the code no longer does what is
// recorded, with the difference. No step function is called and no store is
// needed: see [perdure.Replay] for what is compared.
func Replay(t testing.TB, file string, flows ...perdure.Flow) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Errorf("replay: %v", err)
		return
	}
	defer f.Close()
	r, err := perdure.Replay(context.WithoutCancel(t.Context()), f, flows...)
	if err != nil {
		t.Errorf("replay of %s: %v", file, err)
		return
	}
	for _, run := range r.Runs {
		if run.Fits {
			if run.Note != "" {
				t.Logf("replay of %s: run %s of flow %s, which is %s: %s", file, run.ID, run.Flow, run.Status, run.Note)
			}
			continue
		}
		t.Errorf("replay of %s: the code no longer fits run %s of flow %s, which is %s:\n  %s", file, run.ID, run.Flow, run.Status,
			strings.ReplaceAll(run.Problem, "\n", "\n  "))
	}
}
