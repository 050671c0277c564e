//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
)

// examine runs the doctor and returns what it finds, by check.
func examine(t *testing.T, dir string, exit int, args ...string) map[string]string {
	t.Helper()
	out := launch(t, dir, nil, append([]string{"doctor", "--json"}, args...)...).ends(exit).said.String()
	var report struct {
		OK     bool
		Checks []struct{ Check, Status, Detail, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.OK != (exit == 0) {
		t.Errorf("it exits with %d and says %s", exit, out)
	}
	found := map[string]string{}
	for _, c := range report.Checks {
		found[c.Check] = c.Status
		if c.Status != "ok" && c.Fix == "" {
			t.Errorf("%s is %s, and nothing says what to do: %s", c.Check, c.Status, c.Detail)
		}
	}
	return found
}

// TestDoctor looks at a store that is sound, at the server on it, and at what is
// broken.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	if got := examine(t, dir, 0); got["store"] != "warn" {
		t.Errorf("without a store: %v", got)
	}
	p, address := dev(t, dir)
	thread := begin(t, address)
	status(t, address, thread, perdure.Suspended)
	if got := examine(t, dir, 0, "--server", address); got["server"] != "ok" || got["workers"] != "ok" {
		t.Errorf("of the server: %v", got)
	}
	got := examine(t, dir, 0) // beside the server
	for _, check := range []string{"program", "clock", "flows", "sqlite", "store", "durability", "writing", "workers", "threads", "journals"} {
		if got[check] == "" || got[check] == "broken" {
			t.Errorf("%s is %q", check, got[check])
		}
	}
	begin(t, address)
	p.signal(syscall.SIGTERM).ends(0)
	examine(t, dir, 1, "--server", address)
	examine(t, dir, 1, "--store", "sqlite:"+filepath.Join(dir, "none.db"))
	if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
		t.Error("a store was made")
	}
	other := filepath.Join(dir, "text.db")
	if err := os.WriteFile(other, []byte("this is no database, and long enough to be read as one by its head\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := examine(t, dir, 1, "--store", "sqlite:"+other); got["sqlite"] != "broken" && got["store"] != "broken" {
		t.Errorf("of a text: %v", got)
	}
	examine(t, dir, 1, "--store", "nothing:x")
}

// TestBench measures a store for a moment, and leaves nothing in it.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	var report struct {
		Durability string
		Subjects   []struct {
			Name      string
			PerSecond float64 `json:"per_second"`
		}
	}
	url := "sqlite:" + filepath.Join(dir, "b.db")
	out := launch(t, dir, nil, "bench", "--turn", "20ms", "--json", "--store", url).ends(0).said.String()
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(report.Subjects) != 6 || report.Durability == "" {
		t.Errorf("it says %s", out)
	}
	for _, s := range report.Subjects {
		if s.PerSecond <= 0 {
			t.Errorf("%s: %v", s.Name, s.PerSecond)
		}
	}
	rt, err := perdure.Open(t.Context(), url, perdure.NewFlow("none", func(context.Context, int) (int, error) { return 0, nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
		t.Errorf("there is a thread %+v, %v", s, err)
	}
	launch(t, dir, nil, "bench", "--turn", "5ms").ends(0)
	if left, _ := filepath.Glob(filepath.Join(dir, ".perdure-bench-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
