//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// goIn runs the go command in a folder.
func goIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	// With -trimpath, what this compiles serves every clone of this machine.
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GOPROXY=off", "GOWORK=off", "PERDURE_STORE=", "PERDURE_SERVER=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inClone returns a copy of the program in this clone. make builds it with -trimpath, and
// then it finds its source only above its own folder.
func inClone(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		err = os.MkdirAll(bin, 0o755)
	}
	if err == nil {
		bin, err = os.MkdirTemp(bin, "init-")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(bin, "perdure")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInitMakesAProjectThatRuns runs what it writes as it is, without a network,
// and its test, and goes through a refund: it waits, is approved, and is done.
func TestInitMakesAProjectThatRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "desk")
	said := launchCommand(t, filepath.Dir(dir), nil, inClone(t), "init", "desk", "--module", "example.com/support/desk").ends(0).said.String()
	if !strings.Contains(said, "cd desk") {
		t.Errorf("it says %q", said)
	}
	launch(t, filepath.Dir(dir), nil, "init", "desk").ends(5) // there is something in it now

	// It was not built from a release, so the project uses the source.
	if root, err := filepath.Abs("../.."); err != nil || !strings.Contains(said, root) {
		t.Errorf("it does not say that it uses %s: %v\n%s", root, err, said)
	}
	exe := filepath.Join(dir, "desk")
	goIn(t, dir, "build", "-o", exe, ".")
	if out := launchCommand(t, dir, nil, exe, "flows", "--store", "memory:").ends(0).said.String(); out != "clerk\n" {
		t.Errorf("its flows are %q", out)
	}
	goIn(t, dir, "vet", ".")
	goIn(t, dir, "test", "./...")
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v %s", err, out)
	}

	const thread = "refund-1"
	store := []string{"--store", "sqlite:" + filepath.Join(dir, "desk.db")}
	desk := func(status int, args ...string) string {
		t.Helper()
		return launchCommand(t, dir, nil, exe, append(args, store...)...).ends(status).said.String()
	}
	var waits perdure.Run
	if out := desk(4, "run", "clerk", "Please refund order A-17", "--thread", thread, "--json"); json.Unmarshal([]byte(out), &waits) != nil || len(waits.Asks) != 1 {
		t.Fatalf("it asks nothing: %s", out)
	}
	if out := desk(0, "asks"); !strings.Contains(out, "May this be refunded?") {
		t.Errorf("the asks are %s", out)
	}
	desk(0, "answer", waits.Asks[0].ID, "--approve")
	w := launchCommand(t, dir, nil, exe, append([]string{"worker"}, store...)...)
	show := ""
	for range 100 { // each a process
		if show = desk(0, "show", thread); strings.Contains(show, "succeeded") {
			break
		}
	}
	if !strings.Contains(show, "succeeded") {
		t.Errorf("it is not done: %s", show)
	}
	w.signal(15).ends(0)
	if out := desk(0, "show", thread, "--messages"); !strings.Contains(out, "refunded 42 € for order A-17") {
		t.Errorf("the transcript is %s", out)
	}
}

// TestInitRefusesNames that Go would not take.
func TestInitRefusesNames(t *testing.T) {
	for _, module := range []string{"a b", "../x", "-x", "x/", "/x", "x\ny"} {
		dir := t.TempDir()
		launch(t, dir, nil, "init", "d", "--module", module).ends(2)
		if _, err := os.Stat(filepath.Join(dir, "d")); err == nil {
			t.Errorf("with %q a folder was made", module)
		}
	}
	launch(t, t.TempDir(), nil, "init").ends(2)
}
