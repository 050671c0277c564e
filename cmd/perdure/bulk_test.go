//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/internal/kit"
)

// TestKillWorkersOfABulkJob kills the process that carries out a job again and again,
// with SIGKILL: the job goes on in the next one, and does what it is for.
func TestKillWorkersOfABulkJob(t *testing.T) {
	for _, verb := range []perdure.BulkVerb{perdure.BulkErase, perdure.BulkCancel} {
		t.Run(string(verb), func(t *testing.T) {
			dir := t.TempDir()
			url := "sqlite:" + filepath.Join(dir, "store")
			rt, err := perdure.Open(t.Context(), url, research.Flow(research.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			kills := kit.Sized(1, 6, 40)
			n := 20 * kills
			for i := range n + 1 { // runs that no worker begins
				id, user := fmt.Sprint("a", i), "ann"
				if i == n {
					id, user = "b", "bob"
				}
				kit.Start(t, rt, perdure.StartRequest{Thread: id, User: user, Flow: "research", Input: "x"})
				kit.NoErr(t, rt.Pause(t.Context(), id, "", perdure.Note{}))
			}
			job, err := rt.StartBulk(t.Context(), perdure.BulkRequest{Verb: verb, Filter: perdure.ListOptions{User: "ann"}, Rate: 60})
			if err != nil {
				t.Fatal(err)
			}
			progress := func(past int) { // waits until more than this many threads are done, or all
				for deadline := time.Now().Add(time.Minute); job.State == perdure.BulkRunning && job.Done <= past; {
					if time.Now().After(deadline) {
						t.Fatalf("for a minute the job has been %+v", job)
					}
					time.Sleep(5 * time.Millisecond)
					if job, err = rt.Bulk(t.Context(), job.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			killed := 0
			for ; job.State == perdure.BulkRunning; killed++ {
				w := launch(t, dir, nil, "worker", "--store", url, "--lease", "400ms")
				progress(job.Done)
				w.signal(syscall.SIGKILL).ends(-1)
			}
			if job.Done != n || job.Skipped != 0 || job.Failed != 0 || killed < 2 {
				t.Errorf("after %d kills: %+v", killed, job)
			}
			left := map[perdure.Status]int{}
			for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				left[s.Status]++
			}
			want := map[perdure.Status]int{perdure.Paused: 1}
			if verb == perdure.BulkCancel {
				want[perdure.Cancelled] = n
			}
			if fmt.Sprint(left) != fmt.Sprint(want) {
				t.Errorf("left are %v, want %v", left, want)
			}
			t.Logf("%d kills", killed)
		})
	}
}
