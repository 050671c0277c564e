package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/perdure/perdure/internal/pgtest"
	_ "github.com/perdure/perdure/store/pgstore" // postgres: URLs
)

// news is a line that the program prints: an event, or a piece of a reply.
type news struct {
	Kind, Path, Ask string
	Offset          int
}

// TestSurvivesKills kills the program wherever it is in the middle of something,
// and sees it go on each time, until the report is published.
func TestSurvivesKills(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "research")
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", withPostgres(t), "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		survivesKills(t, exe, "sqlite:"+filepath.ToSlash(filepath.Join(t.TempDir(), "research.db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		survivesKills(t, exe, pgtest.Schema(pgtest.URL(t), t.TempDir()))
	})
}

// withPostgres returns an overlay for go build in which the program imports pgstore.
func withPostgres(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs("postgres.go")
	if err != nil {
		t.Fatal(err)
	}
	file, overlay := filepath.Join(t.TempDir(), "postgres.go"), filepath.Join(t.TempDir(), "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{here: file}})
	if err == nil {
		err = errors.Join(os.WriteFile(overlay, data, 0o600), os.WriteFile(file, []byte("package main\n\nimport _ \"github.com/perdure/perdure/store/pgstore\"\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

func survivesKills(t *testing.T, exe, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // only a hanging program takes that long
	defer cancel()
	dir := t.TempDir()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, exe, append(args, "--store", url)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PERDURE_PACE=20ms", "PERDURE_STORE=", "PERDURE_SERVER=", "XDG_STATE_HOME="+dir)
		return cmd
	}
	run := []string{"run", "research", research.Question, "--thread", "research", "--key", "research"}
	ask, busy := "", 0 // what it asks, and how many kills found it at work
	// killAt kills the program at the first news of a kind. When the machine is so
	// slow that a kill comes late, it asks before.
	killAt := func(at func(news) bool) {
		t.Helper()
		cmd := command(append(run, "--watch", "--json")...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 4<<20)
		for found := false; !found; {
			if !lines.Scan() {
				t.Fatalf("it ends before it is killed: %v", cmd.Wait())
			}
			var n news
			if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
				t.Fatal(err)
			}
			if n.Kind == "asked" {
				ask = n.Ask
			}
			found = at(n) || ask != ""
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if ask == "" {
			busy++
		}
	}
	step := func(name string) func(news) bool {
		return func(n news) bool { return n.Kind == "step" && strings.HasSuffix(n.Path, name+"/run") }
	}
	killAt(func(n news) bool { return n.Kind == "delta" })                                                         // in its first words
	killAt(step("search"))                                                                                         // others are not done
	killAt(step("read_page"))                                                                                      // the pages are read at the same time
	killAt(func(n news) bool { return n.Kind == "delta" && n.Path == "/researcher/turn-4/reply" && n.Offset > 2 }) // in the middle of a long reply, whose calls nobody knows yet
	killAt(func(n news) bool { return false })                                                                     // it waits for a person
	if busy == 0 {
		t.Error("it was never killed at work")
	}
	for _, args := range [][]string{{"answer", ask, "--approve"}, run, run} { // once it has ended it only says so
		if out, err := command(args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	check(t, url, dir, busy)
}

// check looks at what is recorded and published.
func check(t *testing.T, url, dir string, busy int) {
	t.Helper()
	rt, err := perdure.Open(t.Context(), url, research.Flow(research.Options{}))
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
