package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/examples/research"
)

// program is the example while it runs.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   io.Reader
	said  bytes.Buffer

	answered bool // it need not wait for a person
}

func start(ctx context.Context, t *testing.T, exe, dir string) *program {
	t.Helper()
	cmd := exec.CommandContext(ctx, exe, "-pace", "20ms", "-lease", "1s")
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: cmd, stdin: stdin, out: stdout}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return p
}

// question is where the program waits. When the machine is so slow that a kill
// comes late, it is reached before the text at which the next kill is meant to
// come.
const question = "? May the researcher publish"

// until waits until the program has said something, or asks.
func (p *program) until(text string) {
	p.t.Helper()
	piece := make([]byte, 256)
	for !strings.Contains(p.said.String(), text) && (p.answered || !strings.Contains(p.said.String(), question)) {
		n, err := p.out.Read(piece)
		p.said.Write(piece[:n])
		if err != nil && !strings.Contains(p.said.String(), text) {
			p.t.Fatalf("it does not say %q (%v) but:\n%s", text, err, &p.said)
		}
	}
}

// kill kills the program as kill -9 does.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(&p.said, p.out)
	if err := p.cmd.Wait(); err == nil || strings.Contains(p.said.String(), "-- ended") {
		p.t.Fatalf("it ended before it was killed:\n%s", &p.said)
	}
}

// TestSurvivesKills kills the program wherever it is in the middle of something,
// and sees it go on each time, until the report is published.
func TestSurvivesKills(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "research")
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // only a hanging program takes that long
	defer cancel()
	dir := t.TempDir()
	busy := 0 // how many kills found it at work
	for _, at := range []string{
		"A cache can",                 // in its first words
		"done search",                 // two of three searches are not done
		"done read_page: # Stampedes", // the pages are read at the same time
		"Expiry bounds",               // in the middle of a long reply, whose calls nobody knows yet
		question,                      // it waits for a person
	} {
		p := start(ctx, t, exe, dir)
		p.until(at)
		p.kill()
		if !strings.Contains(p.said.String(), question) {
			busy++
		}
	}
	if busy == 0 {
		t.Error("it was never killed at work")
	}
	p := start(ctx, t, exe, dir)
	p.answered = true
	p.until("approve, reject> ")
	fmt.Fprintln(p.stdin, "perhaps")
	p.until("does not fit")
	fmt.Fprintln(p.stdin, "approve")
	p.until("-- file /report.md, ")
	_, _ = io.Copy(&p.said, p.out)
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	p = start(ctx, t, exe, dir) // once it has ended it only says so
	p.answered = true
	p.until("-- ended after 22 steps")
	_, _ = io.Copy(&p.said, p.out)
	if err := p.cmd.Wait(); err != nil || strings.Contains(p.said.String(), "-- at work") {
		t.Errorf("after its end it says (%v):\n%s", err, &p.said)
	}
	check(t, dir, busy)
}

// check looks at what is recorded and published.
func check(t *testing.T, dir string, busy int) {
	t.Helper()
	rt, err := perdure.Open(t.Context(), "sqlite:"+filepath.ToSlash(filepath.Join(dir, "research.db")), research.Flow(research.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	claims, steps, asks := 0, map[string]int{}, map[string]int{}
	for e, err := range rt.Events(t.Context(), "research", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case "claimed":
			claims++
		case "step":
			steps[e.Path]++
		case "asked":
			asks[e.Path]++
		}
	}
	for path, n := range steps {
		if n != 1 {
			t.Errorf("the step %s was done %d times", path, n)
		}
	}
	// A kill at work costs a claim, one while it waits does not.
	if len(steps) != 22 || len(asks) != 1 || claims < busy+2 {
		t.Errorf("%d steps, %d asks and %d claims, want 22, 1 and at least %d", len(steps), len(asks), claims, busy+2)
	}
	at, err := rt.StateAt(t.Context(), "research", 0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := files.At(at.State)
	if err != nil || len(files) != 1 || files[0].Path != "/report.md" {
		t.Fatalf("the files of the thread are %+v, %v", files, err)
	}
	published, err := os.ReadFile(filepath.Join(dir, "published", "keeping-a-cache-fresh.md"))
	if err != nil || string(published) != files[0].Text {
		t.Errorf("published is %q (%v), want the file %q", published, err, files[0].Text)
	}
}
