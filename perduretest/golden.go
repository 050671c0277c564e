package perduretest

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/linediff"
	"github.com/perdure/perdure/store"
)

// A flag called update here would collide with one that a test package defines
// for itself, so there is one of another name, and theirs counts as well.
var update = flag.Bool("perdure.update", false, "rewrite the golden files of perduretest.Golden")

func updating() bool {
	if *update {
		return true
	}
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// Golden compares the [Trace] of a thread with a file, for example
// "testdata/refund.txt". Run go test with -perdure.update to accept the trace
// as it is; if the test package has a flag -update of its own, that does it
// too.
//
// Branches of a group that are busy at the same moment commit in any order. In
// a bubble of virtual time, let their steps take different times.
func Golden(t testing.TB, s store.Store, thread, file string) {
	t.Helper()
	got, err := Trace(context.WithoutCancel(t.Context()), s, thread)
	if err != nil {
		t.Errorf("golden trace: %v", err)
		return
	}
	if updating() {
		err := os.MkdirAll(filepath.Dir(file), 0o777)
		if err == nil {
			err = os.WriteFile(file, []byte(got), 0o666)
		}
		if err != nil {
			t.Errorf("golden trace: %v", err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("golden trace of thread %s: %v; run with -perdure.update to make it. It is now:\n%s", thread, err, got)
		return
	}
	if want := strings.ReplaceAll(string(data), "\r\n", "\n"); got != want {
		t.Errorf("the trace of thread %s differs from %s; if that is meant, run with -perdure.update\n%s", thread, file, strings.Join(linediff.Lines(want, got), "\n"))
	}
}
