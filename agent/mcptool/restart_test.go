//go:build unix

package mcptool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// running reports whether a process is there and no zombie.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && running(n)
}

func ends(t *testing.T, pid string) {
	t.Helper()
	for range 1000 {
		if !alive(pid) {
			return
		}
		time.Sleep(5 * time.Millisecond) // the kernel ends it
	}
	t.Errorf("process %s still runs", pid)
}

func TestKilledServerIsStartedAgain(t *testing.T) {
	s := program(t, "server", Options{})
	for range 3 {
		pid := call(t, s, "pid", "").Text
		n, _ := strconv.Atoi(pid)
		if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// At once: whether its end was noticed before or after the call is sent
		// must make no difference, unless the call reached the program.
		next, err := s.Call(t.Context(), "pid", nil)
		if errors.Is(err, ErrLost) {
			next = call(t, s, "pid", "")
		} else if err != nil {
			t.Fatal(err)
		}
		if next.Text == pid {
			t.Fatalf("process %s was killed and answers", pid)
		}
	}
}

func TestCallDuringACrashMayHaveHappened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes")
	s := program(t, "server", Options{Env: map[string]string{fileVar: file}})
	_, err := s.Call(t.Context(), "crash", nil)
	if !errors.Is(err, ErrLost) {
		t.Fatalf("got %v, want ErrLost", err)
	}
	for _, part := range []string{"crash of server test", "exit status 7", "panic: everything is lost"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	data, _ := os.ReadFile(file)
	if n := strings.Count(string(data), "crash runs"); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
	if out := call(t, s, "echo", `{"text":"on"}`); out.Text != "echo on" {
		t.Errorf("after it: %+v", out)
	}
}

func TestProgramThatDiesAtOnceSaysWhy(t *testing.T) {
	s := program(t, "die", Options{Env: map[string]string{"SECRET": "hunter2-hunter2"}})
	for range 3 {
		_, err := s.Call(t.Context(), "echo", nil)
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no database at db.example") || !strings.Contains(err.Error(), "exit status 3") {
			t.Fatalf("got %v, want ErrUnreachable with its words", err)
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "did not greet in") {
			t.Errorf("the error tells a secret or of a timeout: %v", err)
		}
	}
	if _, err := Command("none", "/does/not/exist").Call(t.Context(), "x", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestProgramThatFailsAgainAndAgainIsLeftAlone(t *testing.T) {
	s := program(t, "die", Options{})
	s.fails, s.failed = 30, time.Now()
	if d := s.pause(); d <= 0 || d > 10*time.Second {
		t.Errorf("it is left alone for %v, want up to the longest pause", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Call(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want the pause to end with the context", err)
	}
	s.failed = time.Now().Add(-time.Minute)
	if d := s.pause(); d > 0 {
		t.Errorf("after a minute it is left alone for another %v", d)
	}
}

// TestProgramsAreGreetedFirst: some end or wait when something else comes before
// the greeting, and newer ones need none.
func TestProgramsAreGreetedFirst(t *testing.T) {
	for _, mode := range []string{"strict", "patient", "modern"} {
		if tools, err := program(t, mode, Options{}).Tools(t.Context()); err != nil || len(tools) != 1 {
			t.Errorf("%s: %v, %v", mode, names(tools), err)
		}
	}
}

func TestMuteProgramIsGivenUp(t *testing.T) {
	s := program(t, "mute", Options{StartTimeout: 300 * time.Millisecond})
	if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "did not greet") {
		t.Errorf("got %v", err)
	}
	s = program(t, "mute", Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Call(ctx, "x", nil); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestProgramThatDoesNotReadIsGivenUp(t *testing.T) {
	s := program(t, "deaf", Options{})
	c, err := s.take(t.Context()) // it starts, however long that takes
	if err != nil {
		t.Fatal(err)
	}
	s.give(c, false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	big := `{"text":"` + strings.Repeat("x", 1<<20) + `"}`
	if _, err := s.Call(ctx, "echo", []byte(big)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want its time over and its outcome unknown", err)
	}
}

func TestJunkOnTheOutputIsPassedOver(t *testing.T) {
	s := program(t, "junk", Options{})
	if out := call(t, s, "echo", `{"text":"hi"}`); out.Text != "echo hi" {
		t.Errorf("got %+v", out)
	}
}

func TestCloseEndsTheProcessGroup(t *testing.T) {
	s := program(t, "server", Options{})
	pid, grandchild := call(t, s, "pid", "").Text, call(t, s, "spawn", "").Text
	if !alive(pid) || !alive(grandchild) {
		t.Fatal("the program and what it started do not run")
	}
	s.Close()
	ends(t, pid)
	ends(t, grandchild)
}

func TestCrashEndsTheProcessGroup(t *testing.T) {
	s := program(t, "server", Options{})
	grandchild := call(t, s, "spawn", "").Text
	if _, err := s.Call(t.Context(), "crash", nil); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	ends(t, grandchild)
}
