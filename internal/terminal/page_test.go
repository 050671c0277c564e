package terminal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPageUsesThePager shows a long page in $PAGER on a terminal, and prints it in
// a pipe.
func TestPageUsesThePager(t *testing.T) {
	if os.Getenv("PERDURE_PAGE") != "" {
		page := &Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv}
		if err := page.Page(t.Context(), strings.Repeat("line\n", 100)); err != nil {
			t.Fatal(err)
		}
		return
	}
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("skipped, because script of util-linux is needed")
	}
	dir := t.TempDir()
	pager := filepath.Join(dir, "pager")
	if err := os.WriteFile(pager, []byte("#!/bin/sh\necho paged by $1; wc -l\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	self := []string{os.Args[0], "-test.run=TestPageUsesThePager"}
	run := func(c *exec.Cmd) string {
		t.Helper()
		c.Env = append(os.Environ(), "PERDURE_PAGE=1", "PAGER="+pager+" me", "TERM=xterm")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run(exec.CommandContext(t.Context(), self[0], self[1])); strings.Contains(out, "paged by") || strings.Count(out, "line\n") != 100 {
		t.Errorf("in a pipe it prints %s", out)
	}
	if out := run(exec.CommandContext(t.Context(), script, "-qec", "stty rows 20 cols 80; "+strings.Join(self, " "), filepath.Join(dir, "log"))); !strings.Contains(out, "paged by me") {
		t.Errorf("on a terminal it prints %s", out)
	}
}
