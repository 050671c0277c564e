package perduretest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// Replay runs today's flows against the runs in a file written by
// [perdure.Runtime.Export], for example one of yesterday's threads in production.
// If the code no longer does what is recorded, it fails the test and shows the
// difference. It calls no step function and needs no store: see [perdure.Replay]
// for what is compared.
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
