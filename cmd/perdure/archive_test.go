//go:build unix

package main

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
)

// TestArchiveIsKilled kills archive and unarchive again and again. The thread that
// comes back is the one that went away, to the last byte, and after its erase the
// archive has only its mark.
func TestArchiveIsKilled(t *testing.T) {
	for name, scheme := range map[string]string{"sqlite": "sqlite:store.db", "file": "file:store"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, kept := t.TempDir(), t.TempDir()
			command := func(args ...string) *process {
				return launch(t, dir, []string{"PERDURE_PACE=0s"}, append(args, "--store", scheme, "--archive", "file:"+kept)...)
			}
			command("run", "research", "What?", "--thread", "t").ends(0)
			before := command("export", "t").ends(0).said.String()
			for range kit.Sized(3, 15, 15) {
				for _, verb := range []string{"archive", "unarchive"} {
					p := command(verb, "t")
					time.Sleep(rand.N(300 * time.Millisecond)) // at some point of it
					p.signal(syscall.SIGKILL).end()
					if p := command(verb, "t"); p.end() != 0 {
						t.Fatalf("%s after a kill: %s", verb, p.err.String())
					}
				}
			}
			if after := command("export", "t").ends(0).said.String(); after != before {
				t.Errorf("the export is\n%s\nbefore:\n%s", after, before)
			}
			command("archive", "t").ends(0)
			command("show", "t").ends(3)
			command("erase", "t", "--yes").ends(0)
			if left, err := os.ReadDir(kept); err != nil || len(left) != 1 || left[0].Name() != archive.MarkFile {
				t.Errorf("left in the archive: %v, %v", left, err)
			}
		})
	}
}
