package main

import (
	"bufio"
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
)

// program is the example while it runs.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func start(ctx context.Context, t *testing.T, exe, dir string) *program {
	t.Helper()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &program{t, cmd, stdin, bufio.NewReader(stdout)}
}

// says waits until the program has said so much, and demands what it is.
func (p *program) says(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(p.out, got); string(got) != want {
		p.t.Fatalf("it says %q (%v), want %q", got[:n], err, want)
	}
}

// kill kills the program as kill -9 does.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if rest, _ := io.ReadAll(p.out); len(rest) > 0 {
		p.t.Fatalf("it came as far as to say %q before it was killed", rest)
	}
	_ = p.cmd.Wait()
}

// TestSurvivesKills kills the program in its first step, while it asks, and in
// its last step, and sees it go on each time.
func TestSurvivesKills(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "approval")
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // only a hanging program takes that long
	defer cancel()
	dir := t.TempDir()
	const lookUp, question, paying, receipt = "looking up order A-17\n", "Refund 42 € for order A-17? (yes/no) ", "paying under the key ", "refunded 42 €\n"

	p := start(ctx, t, exe, dir)
	p.says(lookUp)
	p.kill()

	p = start(ctx, t, exe, dir)
	p.says(lookUp) // the step did not get to its end, so it runs again
	p.says(question)
	p.kill()

	p = start(ctx, t, exe, dir)
	p.says(question)
	p.stdin.Close() // nobody answers: the program gives up, the question stays
	if err := p.cmd.Wait(); err == nil {
		t.Error("it went on without a reply")
	}

	p = start(ctx, t, exe, dir)
	p.says(question)
	fmt.Fprintln(p.stdin, "yes")
	p.says(paying)
	key, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.kill()

	p = start(ctx, t, exe, dir)
	p.says(paying + key + receipt) // the answer is kept, and so is the key
	p.ends()

	p = start(ctx, t, exe, dir)
	p.says(receipt)
	p.ends()
}

// ends waits for the program's end, before which it says nothing more.
func (p *program) ends() {
	p.t.Helper()
	rest, err := io.ReadAll(p.out)
	if err != nil || len(rest) > 0 {
		p.t.Errorf("it says %q more (%v)", rest, err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}

// TestIsTheTutorial holds that this program is the one of the package comment.
func TestIsTheTutorial(t *testing.T) {
	own, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(own), "\npackage main\n")
	program = strings.NewReplacer("\t\ttime.Sleep(time.Second)\n", "", "\t\"time\"\n", "").Replace("package main\n" + program)
	var comment strings.Builder
	for line := range strings.Lines(program) {
		if line != "\n" {
			line = "\t" + line
		}
		comment.WriteString(strings.TrimSuffix("//"+line, "\n") + "\n")
	}
	if !strings.Contains(string(doc), comment.String()) {
		t.Errorf("doc.go does not hold this program without its sleeps:\n%s", comment.String())
	}
}
