//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/research"
)

var (
	demoStore  = regexp.MustCompile(`sqlite:(\S+demo\.db)`)
	demoKilled = regexp.MustCompile(`kill -9 (\d+)`)
	demoNext   = regexp.MustCompile(`3\. Another worker, process (\d+)`)
	demoRow    = regexp.MustCompile(`(?m)^  (/\S+) +([\d, ]*\d) +(\d+) *(.*?) *$`)
	demoHint   = regexp.MustCompile(`(?m)^  (?:go run \S+|\S+) ((?:show|events|fork) .* --store \S+)$`)
)

// TestDemoTellsWhatHappened compares what the demo says with the store that it
// leaves, and tries what it proposes.
func TestDemoTellsWhatHappened(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, dir, nil, "demo", "--fast").ends(0)
	out := p.said.String()
	at := 0
	for _, text := range []string{"1. A worker", research.Question, "✗ kill -9", "2. The worker is dead", "3. Another worker", "It continues after",
		"4. The agent needs a person", "May the researcher publish", "5. It is approved", "Done. Let every entry end", "6. Who did what", "Nothing else did.", "is intact", "Look around"} {
		i := strings.Index(out[at:], text)
		if i < 0 {
			t.Fatalf("%q is missing, or not where it should be, in:\n%s", text, out)
		}
		at += i
	}
	if i := strings.IndexFunc(out, func(c rune) bool { return c < ' ' && c != '\n' || c == 0x7f }); i >= 0 {
		t.Errorf("there is a control character in a pipe: %q", out[max(0, i-20):i+1])
	}
	pid := func(e *regexp.Regexp) int {
		found := e.FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("no %v in:\n%s", e, out)
		}
		n, _ := strconv.Atoi(found[1])
		if alive(n) {
			t.Errorf("process %d is still there", n)
		}
		return n
	}
	dead, other := pid(demoKilled), pid(demoNext)

	rows, again := map[string]string{}, 0
	for _, row := range demoRow.FindAllStringSubmatch(out, -1) {
		rows[row[1]] = row[2]
		switch row[2] + " " + row[3] {
		case fmt.Sprintf("%d 1", dead), fmt.Sprintf("%d 1", other):
		case fmt.Sprintf("%d, %d 2", dead, other):
			again++
			if row[4] != "in progress at the kill, so run again" {
				t.Errorf("a step that ran twice is not marked: %q", row)
			}
		default:
			t.Errorf("the row %q", row[0])
		}
	}
	if again != 1 {
		t.Errorf("%d steps were under way, want the reply alone:\n%s", again, out)
	}

	checkPicture(t, out)

	file := demoStore.FindStringSubmatch(out)[1]
	rt, err := perdure.Open(t.Context(), "sqlite:"+file, research.Flow(research.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	steps, cut := 0, true
	for e, err := range rt.Events(t.Context(), "demo", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != "step" || e.Path == "/researcher" { // which holds all others
			continue
		}
		steps++
		switch rows[e.Path] {
		case strconv.Itoa(dead):
			if !cut {
				t.Errorf("%s is recorded behind what the dead process did not live to record", e.Path)
			}
		case "":
			t.Errorf("%s is not in the table", e.Path)
		default:
			cut = false
		}
	}
	if steps != len(rows) || steps != 21 {
		t.Errorf("the journal has %d steps and the table %d, want 21", steps, len(rows))
	}
	hints := demoHint.FindAllStringSubmatch(out, -1)
	if len(hints) != 3 {
		t.Fatalf("%d hints, want 3:\n%s", len(hints), out)
	}
	for _, hint := range hints {
		launch(t, dir, nil, strings.Fields(hint[1])...).ends(0)
	}
}

// TestDemoTakesAnAnswer lets a person answer who first says nothing useful.
func TestDemoTakesAnAnswer(t *testing.T) {
	p := launch(t, t.TempDir(), nil, "demo", "--fast", "--ask")
	p.until("store may answer")
	fmt.Fprintln(p.stdin, "perhaps\nreject too short")
	p.ends(0)
	for _, text := range []string{"5. It is rejected, by you", "I leave it unpublished"} {
		if !strings.Contains(p.said.String(), text) {
			t.Errorf("%q is missing in:\n%s", text, p.said.String())
		}
	}
}

// TestDemoWithoutAPerson fails, since the story has no end then.
func TestDemoWithoutAPerson(t *testing.T) {
	p := launch(t, t.TempDir(), nil, "demo", "--fast", "--ask")
	p.stdin.Close()
	p.ends(1)
	if !strings.Contains(p.err.String(), "nobody is there to answer") {
		t.Errorf("it says %q", p.err.String())
	}
}

// TestDemoWhoseWorkerCannotStart fails and says why.
func TestDemoWhoseWorkerCannotStart(t *testing.T) {
	p := launch(t, t.TempDir(), []string{noWorker + "=1"}, "demo", "--fast").ends(1)
	if said := p.err.String(); !strings.Contains(said, "ended by itself: exit status 3: this machine") || strings.Contains(said, "\x1b") {
		t.Errorf("it says %q", said)
	}
}

// TestDemoIsInterrupted leaves neither processes nor files.
func TestDemoIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, dir, nil, "demo", "--fast")
	line := p.until("1. A worker, process")
	worker, err := strconv.Atoi(regexp.MustCompile(`process (\d+)`).FindStringSubmatch(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT).ends(130)
	if alive(worker) {
		t.Errorf("the worker %d is still there", worker)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "perdure-demo-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestDemoIsKilled: a worker stops when whoever started it is gone.
func TestDemoIsKilled(t *testing.T) {
	p := launch(t, t.TempDir(), nil, "demo", "--fast")
	line := p.until("1. A worker, process")
	worker, err := strconv.Atoi(regexp.MustCompile(`process (\d+)`).FindStringSubmatch(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGKILL).ends(-1)
	// It is no child of this process, so there is nothing to wait on.
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	late := time.After(patience)
	for alive(worker) && !zombie(worker) {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("the worker %d is still there", worker)
		}
	}
}

// zombie reports whether a process has ended and nobody has taken notice.
func zombie(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// TestDemoInATerminal has colours there.
func TestDemoInATerminal(t *testing.T) {
	terminal, err := exec.LookPath("script") // makes a terminal; other systems have another one
	help, _ := exec.Command("script", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(help), "--return") {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the script(1) of util-linux is missing: %v", err)
		}
		t.Skip("skipped, because there is no script(1) of util-linux")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := launchCommand(t, t.TempDir(), []string{"TERM=xterm", "NO_COLOR="}, terminal, "--quiet", "--return", "--command", exe+" demo --fast", "/dev/null").ends(0)
	if out := p.said.String(); !strings.Contains(out, "\x1b[1m6. Who did what\x1b[0m") || !strings.Contains(out, "Nothing else did.") {
		t.Errorf("it says:\n%q", out)
	}
}
