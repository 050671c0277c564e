//go:build unix

package main

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/research"
)

// TestWhyAfterAKill kills the worker of a run with SIGKILL: its thread says that the
// lease has to end, and then that no worker is left.
func TestWhyAfterAKill(t *testing.T) {
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "store")
	rt, err := perdure.Open(t.Context(), url, research.Flow(research.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "research", Input: "x"}); err != nil {
		t.Fatal(err)
	}
	w := launch(t, dir, []string{"PERDURE_PACE=1s"}, "worker", "--store", url, "--lease", "3s")
	until := func(state perdure.WhyState) *perdure.Why {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			thread, err := rt.Get(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			if thread.Why.State == state {
				return thread.Why
			}
			if time.Now().After(deadline) {
				t.Fatalf("for two minutes it has been %+v, never %s", thread.Why, state)
			}
		}
	}
	holder := until(perdure.WhyWorking).Worker
	w.signal(syscall.SIGKILL).ends(-1)
	if why := until(perdure.WhyLease); why.Worker != holder || why.Until.IsZero() {
		t.Errorf("after the kill it is %+v", why)
	}
	if why := until(perdure.WhyNoWorker); why.Worker != holder {
		t.Errorf("after the end of the lease it is %+v", why)
	}
}
