//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/research"
)

// dev starts the dev server on a free port, and returns its address.
func dev(t *testing.T, dir string, env ...string) (*process, string) {
	t.Helper()
	p := launch(t, dir, env, "dev", "--addr", "127.0.0.1:0")
	line := p.until("Perdure serves http://")
	address, _, _ := strings.Cut(line[strings.Index(line, "http://"):], ",")
	return p, address
}

// begin starts a run and returns its thread.
func begin(t *testing.T, address string) string {
	t.Helper()
	input, _ := json.Marshal(research.Question)
	var run perdure.Run
	call(t, "POST", address+"/v1/runs", fmt.Sprintf(`{"flow": "research", "input": %s}`, input), &run)
	return run.Thread
}

// status waits until the newest run of a thread has a status.
func status(t *testing.T, address, thread string, want perdure.Status) *perdure.Run {
	t.Helper()
	var got struct{ Run *perdure.Run }
	for range 60 { // of a second each
		call(t, "GET", address+"/v1/threads/"+thread+"/runs/newest/wait?seconds=1", "", &got)
		if got.Run.Status == want {
			return got.Run
		}
		if got.Run.Status.Final() {
			break
		}
	}
	t.Fatalf("the run is %s (%s), want %s", got.Run.Status, got.Run.Error, want)
	return nil
}

// approve answers what a run asks.
func approve(t *testing.T, address string, run *perdure.Run) {
	t.Helper()
	if len(run.Asks) != 1 {
		t.Fatalf("it asks %+v", run.Asks)
	}
	call(t, "POST", address+"/v1/asks/"+run.Asks[0].ID+"/answer", `{"decision": "approve"}`, nil)
}

// TestDevServesAndWorks goes the whole way over HTTP, as curl would.
func TestDevServesAndWorks(t *testing.T) {
	dir := t.TempDir()
	p, address := dev(t, dir)
	var page string
	call(t, "GET", address+"/", "", &page)
	if !strings.Contains(page, "/openapi.json") || !strings.Contains(page, "/v1") {
		t.Errorf("the page says %q", page)
	}
	thread := begin(t, address)
	approve(t, address, status(t, address, thread, perdure.Suspended))
	if out, err := perdure.Output[string](status(t, address, thread, perdure.Succeeded)); err != nil || !strings.HasPrefix(out, "Done. ") {
		t.Errorf("it says %q, %v", out, err)
	}

	// The commands find it where it is, and so does a second one.
	found := launch(t, dir, nil, "show", thread, "--server", address).ends(0)
	if !strings.Contains(found.said.String(), "succeeded") {
		t.Errorf("show says %s", found.said.String())
	}
	again := launch(t, t.TempDir(), nil, "dev", "--addr", strings.TrimPrefix(address, "http://")).ends(7)
	if !strings.Contains(again.err.String(), "--addr 127.0.0.1:0") {
		t.Errorf("it does not say what to do: %s", again.err.String())
	}
	if ignored, err := os.ReadFile(filepath.Join(dir, ".perdure", ".gitignore")); err != nil || string(ignored) != "*\n" {
		t.Errorf("its folder is not ignored: %q, %v", ignored, err)
	}
	p.signal(syscall.SIGTERM).ends(0)
	if !strings.Contains(p.err.String(), "run ended") || !strings.Contains(p.err.String(), "status=succeeded") {
		t.Errorf("its log has no line about the end: %s", p.err.String())
	}
}

// TestDevRefusesOtherMachines, since it asks nobody who they are.
func TestDevRefusesOtherMachines(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		p := launch(t, t.TempDir(), nil, "dev", "--addr", address).ends(2)
		if _, err := os.Stat(filepath.Join(p.cmd.Dir, ".perdure")); err == nil {
			t.Errorf("with %s a store was made", address)
		}
	}
}

// TestDevGoesOnAfterAKill kills it in the middle of a run.
func TestDevGoesOnAfterAKill(t *testing.T) {
	dir := t.TempDir()
	p, address := dev(t, dir, "PERDURE_PACE=40ms")
	thread := begin(t, address)
	var run perdure.Run
	for range 60 {
		if call(t, "GET", address+"/v1/threads/"+thread+"/runs/newest", "", &run); run.Steps >= 2 {
			break
		}
		var waited any
		call(t, "GET", address+"/v1/threads/"+thread+"/runs/newest/wait?seconds=1", "", &waited)
	}
	if run.Steps < 2 || run.Status != perdure.Running {
		t.Fatalf("the run is %s after %d steps", run.Status, run.Steps)
	}
	p.signal(syscall.SIGKILL).ends(-1)

	p, address = dev(t, dir)
	approve(t, address, status(t, address, thread, perdure.Suspended))
	if run := status(t, address, thread, perdure.Succeeded); run.Steps != 22 || run.Resumes < 2 {
		t.Errorf("it took %d steps and %d resumes, want 22 and at least 2", run.Steps, run.Resumes)
	}
	p.signal(syscall.SIGINT).ends(0)
}

// TestTwoDevsShareAFolder starts on one and answers on the other.
func TestTwoDevsShareAFolder(t *testing.T) {
	dir := t.TempDir()
	one, first := dev(t, dir)
	two, second := dev(t, dir)
	var threads []string
	for range 4 {
		threads = append(threads, begin(t, first), begin(t, second))
	}
	for _, thread := range threads {
		approve(t, second, status(t, first, thread, perdure.Suspended))
	}
	one.signal(syscall.SIGTERM).ends(0)
	for _, thread := range threads {
		status(t, second, thread, perdure.Succeeded)
	}
	two.signal(syscall.SIGTERM).ends(0)
}

// TestThreeProcessesOneApproval: one starts the run and dies while it waits, one
// answers and ends, and a third goes on to the end.
func TestThreeProcessesOneApproval(t *testing.T) {
	dir := t.TempDir()
	p, address := dev(t, dir)
	thread := begin(t, address)
	run := status(t, address, thread, perdure.Suspended)
	p.signal(syscall.SIGKILL).ends(-1)

	url := "sqlite:" + filepath.Join(dir, ".perdure", "perdure.db")
	launch(t, dir, nil, "answer", run.Asks[0].ID, "--approve", "--by", "editor", "--store", url).ends(0)
	rt, err := perdure.Open(t.Context(), url, research.Flow(research.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if now, err := rt.GetRun(t.Context(), thread, ""); err != nil || now.Status.Final() || now.Steps != run.Steps {
		t.Fatalf("without a worker it is %+v, %v", now, err)
	}

	w := launch(t, dir, nil, "worker", "--store", url, "--concurrency", "2", "--metrics", "127.0.0.1:0")
	ended, err := rt.WaitEnd(t.Context(), thread, "")
	if err != nil || ended.Status != perdure.Succeeded {
		t.Fatalf("it ends as %+v, %v", ended, err)
	}
	var shown string
	call(t, "GET", w.err.find(t, regexp.MustCompile(`metrics are at (\S+)`)), "", &shown)
	if !strings.Contains(shown, `perdure_passes_total{flow="research"} 1`) || !strings.Contains(shown, `perdure_takeovers_total{flow="research"} 0`) || !strings.Contains(shown, "go_goroutines") {
		t.Errorf("the metrics of the worker are %s", shown)
	}
	w.signal(syscall.SIGTERM).ends(0)
	by := ""
	for e, err := range rt.Events(t.Context(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "answered" {
			by = e.By
		}
	}
	if by != "editor" {
		t.Errorf("it was answered by %q", by)
	}
}

// TestCommandsFindTheDevOfTheirFolder: without --server and --store, commands use
// ./.perdure, through the dev that serves it if there is one.
func TestCommandsFindTheDevOfTheirFolder(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	p, address := dev(t, here)
	q, other := dev(t, there)
	threads := map[string]string{here: begin(t, address), there: begin(t, other)}
	status(t, address, threads[here], perdure.Suspended)
	status(t, other, threads[there], perdure.Suspended)
	look := func(when string) {
		t.Helper()
		for dir, id := range threads {
			// A token in the environment is for a server that is named.
			got := launch(t, dir, []string{"PERDURE_TOKEN=prd_for_another"}, "threads", "--json").ends(0).said.String()
			if n := strings.Count(got, `"id": "`); n != 1 || !strings.Contains(got, id) {
				t.Errorf("%s, in the folder of %s: %s", when, id, got)
			}
		}
	}
	look("with both")
	p.signal(syscall.SIGKILL).ends(-1) // its record stays
	look("with one killed")
	q.signal(syscall.SIGTERM).ends(0)
	look("with none")
	launch(t, here, nil, "threads", "--token", "prd_x").ends(2)
}

// TestAStoreFromElsewhereIsNotUsed unless someone says so.
func TestAStoreFromElsewhereIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	p, address := dev(t, dir)
	thread := begin(t, address)
	status(t, address, thread, perdure.Suspended)
	p.signal(syscall.SIGTERM).ends(0)
	elsewhere := "XDG_STATE_HOME=" + t.TempDir()
	for _, args := range [][]string{{"threads"}, {"dev", "--addr", "127.0.0.1:0"}, {"worker"}, {"run", "research", "x"}, {"serve", "--addr", "127.0.0.1:0"}} {
		if said := launch(t, dir, []string{elsewhere}, args...).ends(2).err.String(); !strings.Contains(said, "--trust") {
			t.Errorf("%s says %s", args[0], said)
		}
	}
	launch(t, dir, []string{elsewhere}, "threads", "--store", "sqlite:.perdure/perdure.db").ends(0)
	launch(t, dir, []string{elsewhere}, "threads").ends(2)
	launch(t, dir, []string{elsewhere}, "threads", "--trust").ends(0)
	launch(t, dir, []string{elsewhere}, "threads").ends(0)
	// A file that replaces the known one is not known.
	q, address := dev(t, t.TempDir())
	foreign := filepath.Join(q.cmd.Dir, ".perdure", "perdure.db")
	status(t, address, begin(t, address), perdure.Suspended)
	q.signal(syscall.SIGTERM).ends(0)
	data, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-wal", "-shm", ""} {
		if err := os.RemoveAll(filepath.Join(dir, ".perdure", "perdure.db"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".perdure", "perdure.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, dir, []string{elsewhere}, "threads").ends(2)
	// Nor is a copy of one's own: others may have changed it. The original stays known.
	copied := t.TempDir()
	if err := os.CopyFS(filepath.Join(copied, ".perdure"), os.DirFS(filepath.Dir(foreign))); err != nil {
		t.Fatal(err)
	}
	launch(t, copied, nil, "threads").ends(2)
	launch(t, copied, nil, "threads", "--trust").ends(0)
	launch(t, copied, nil, "threads").ends(0)
	launch(t, q.cmd.Dir, nil, "threads").ends(0)
}

// TestWhatDevMakesIsPrivate, also where the umask would give it to all; and a
// new store in a folder for everyone has to be asked for.
func TestWhatDevMakesIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	if said := launch(t, dir, nil, "dev", "--addr", "127.0.0.1:0").ends(7).err.String(); !strings.Contains(said, "--shared-folder") {
		t.Errorf("dev in a folder for everyone: %s", said)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, address := dev(t, dir)
	status(t, address, begin(t, address), perdure.Suspended)
	err := filepath.WalkDir(filepath.Join(dir, ".perdure"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	p.signal(syscall.SIGTERM).ends(0)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if said := launch(t, dir, nil, "memory", "put", "a/b", "1", "--store", "sqlite:new.db").ends(7).err.String(); !strings.Contains(said, "--shared-folder") {
		t.Errorf("a new store in a folder for everyone: %s", said)
	}
	launch(t, dir, nil, "memory", "put", "a/b", "1", "--store", "sqlite:new.db", "--shared-folder").ends(0)
	launch(t, dir, nil, "threads", "--store", "sqlite:new.db").ends(0)
}
