package backup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// child names what a process that is to be killed works on.
const child = "PERDURE_TEST_BACKUP"

func TestMain(m *testing.M) {
	if what := os.Getenv(child); what != "" {
		engine, dir, _ := strings.Cut(what, ":")
		fmt.Fprintln(os.Stderr, work(engine, dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// work writes to a store and backs it up again and again, until it is killed. It
// prints what was acknowledged, and when a backup begins and ends.
func work(engine, dir string) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s, err := store.Open(ctx, engine+":"+filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	l := &load{s: s, tell: func(w int, n int64) { fmt.Printf("acked %d %d\n", w, n) }}
	for w := range writers {
		go func() { cancel(l.write(ctx, w)) }()
	}
	for ctx.Err() == nil {
		name := fmt.Sprint("backup-", time.Now().UnixNano())
		fmt.Printf("begin %s\n", name)
		if _, err := backup.Take(ctx, s, filepath.Join(dir, name)); err != nil {
			return err
		}
		fmt.Printf("end %s\n", name)
	}
	return context.Cause(ctx)
}

// killed runs the work in dir in another process for a while and kills it once
// cut has returned. It returns what was acknowledged before each backup began, and which ended.
func killed(t *testing.T, engine, dir string, cut func(pid int) error) (begun map[string][writers]int64, ended []string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), child+"="+engine+":"+dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	kit.NoErr(t, err)
	kit.NoErr(t, c.Start())
	var now [writers]int64
	begun = map[string][writers]int64{}
	lines := 0
	most := 200 + rand.IntN(1000)
	for in := bufio.NewScanner(out); in.Scan(); lines++ {
		var w int
		var n int64
		var name string
		if _, err := fmt.Sscanf(in.Text(), "acked %d %d", &w, &n); err == nil {
			now[w] = n
		} else if _, err := fmt.Sscanf(in.Text(), "begin %s", &name); err == nil {
			begun[name] = now
		} else if _, err := fmt.Sscanf(in.Text(), "end %s", &name); err == nil {
			ended = append(ended, name)
		}
		if lines == most {
			kit.NoErr(t, errors.Join(cut(c.Process.Pid), c.Process.Kill()))
		}
	}
	_ = c.Wait() // it was killed
	if lines < most {
		t.Fatal("the process ended by itself")
	}
	return begun, ended
}

// TestKilled kills a process that writes to a store and backs it up. What is at the
// place of a backup is whole, and holds what was acknowledged before it began; the
// store is unharmed.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		dir, whole := t.TempDir(), 0
		for range kit.Sized(1, 5, 60) {
			begun, ended := killed(t, engine, dir, func(int) error { return nil })
			for _, name := range ended {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Errorf("a backup that was complete: %v", err)
				}
			}
			for name, least := range begun {
				at := filepath.Join(dir, name)
				if _, err := os.Stat(at); err != nil {
					continue // it was not complete
				}
				whole++
				if err := check(t.Context(), restored(t, engine, at), least); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				kit.NoErr(t, os.RemoveAll(at))
			}
			s := openAt(t, engine, filepath.Join(dir, "store"))
			if err := check(t.Context(), s, [writers]int64{}); err != nil {
				t.Errorf("the store after a kill: %v", err)
			}
			kit.NoErr(t, s.Close())
		}
		if whole == 0 {
			t.Error("no backup was complete")
		}
	})
}
