package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

const (
	seedProcess = "PERDURE_SEED_PROCESS" // what this process is to do
	seedFolder  = "PERDURE_SEED_FOLDER"  // and where
	seedStore   = "PERDURE_SEED_STORE"   // and on which store
)

var seedSlow = make(chan bool, 10) // the slow tool is at work in this process

// Promise: pause and resume across three processes. One starts the run and is
// killed with a tool at work, one answers and does nothing else, one goes on.
// Events are numbered without gaps across all of them.
func TestSeedWasmPauseAndResumeAcrossThreeProcesses(t *testing.T) {
	if what := os.Getenv(seedProcess); what != "" {
		if err := seedChild(what, os.Getenv(seedFolder)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		seedThreeProcesses(t, dir, "sqlite:"+filepath.Join(dir, "store.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		dir := t.TempDir()
		seedThreeProcesses(t, dir, pgtest.Schema(pgtest.URL(t), dir))
	})
	t.Run("redis", func(t *testing.T) {
		dir := t.TempDir()
		seedThreeProcesses(t, dir, redistest.Prefix(redistest.URL(t), dir))
	})
	t.Run("s3", func(t *testing.T) {
		dir := t.TempDir()
		seedThreeProcesses(t, dir, s3test.URL(t, dir))
	})
	t.Run("nats", func(t *testing.T) {
		dir := t.TempDir()
		seedThreeProcesses(t, dir, natstest.Stream(natstest.URL(t), dir))
	})
}

func seedThreeProcesses(t *testing.T, dir, url string) {
	first := seedRun(t, dir, url, "start", "hanging") // is killed when it says so
	second := seedRun(t, dir, url, "answer", "")
	third := seedRun(t, dir, url, "go on", "")
	if !strings.Contains(first, "hanging") || !strings.Contains(second, "answered") || !strings.Contains(third, "output prepare=prepared;deploy=deployed;slow=slow;") {
		t.Fatalf("the processes said:\n%s\n%s\n%s", first, second, third)
	}
	world, err := os.ReadFile(filepath.Join(dir, "world"))
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{"model": 2, "prepare": 1, "deploy": 1, "slow": 2} {
		if got := strings.Count(string(world), what+"\n"); got != want {
			t.Errorf("%s happened %d times, want %d:\n%s", what, got, want, world)
		}
	}
	rt, end := seedOpen(t.Context(), t.Fatal, dir, url)
	defer end()
	var seqs []uint64
	for e, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, e.Seq); e.Seq != uint64(len(seqs)) {
			t.Fatalf("event %d has the id %d", len(seqs), e.Seq)
		}
	}
	for after := range uint64(len(seqs)) { // a reader that comes back anywhere
		next := after
		for e, err := range rt.Events(t.Context(), "t", perdure.EventOptions{Replay: true, After: after}) {
			if err != nil {
				t.Fatal(err)
			}
			if next++; e.Seq != next {
				t.Fatalf("after %d there is %d in place of %d", after, e.Seq, next)
			}
		}
		if next != uint64(len(seqs)) {
			t.Fatalf("after %d the last one is %d, want %d", after, next, len(seqs))
		}
	}
}

// seedRun executes this test in another process, which is killed when it says
// something, and returns what it said.
func seedRun(t *testing.T, dir, url, what, kill string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSeedWasmPauseAndResumeAcrossThreeProcesses$", "-test.count=1")
	cmd.Env = append(os.Environ(), seedProcess+"="+what, seedFolder+"="+dir, seedStore+"="+url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, killed := "", false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if kill != "" && lines.Text() == kill {
			killed = cmd.Process.Kill() == nil
		}
	}
	if err := cmd.Wait(); (err != nil) != (kill != "") || killed != (kill != "") {
		t.Fatalf("process %q: %v\n%s\n%s", what, err, said, stderr.String())
	}
	return said
}

func seedOpen(ctx context.Context, fatal func(...any), dir, url string) (*perdure.Runtime, func()) {
	world := func(what string) {
		f, err := os.OpenFile(filepath.Join(dir, "world"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = io.WriteString(f, what+"\n")
			err = errCheck(err, f.Close())
		}
		if err != nil {
			fatal(err)
		}
	}
	first := func() bool { return os.Getenv(seedProcess) == "start" }
	prepare := agent.NewTool("prepare", "Prepares.", func(context.Context, struct{}) (string, error) {
		world("prepare")
		return "prepared", nil
	})
	deploy := agent.NewTool("deploy", "Deploys.", func(context.Context, struct{}) (string, error) {
		world("deploy")
		return "deployed", nil
	}, agent.NeedsApproval())
	slow := agent.NewTool("slow", "Takes long.", func(ctx context.Context, _ struct{}) (string, error) {
		world("slow")
		if first() {
			seedSlow <- true
			return "", hang(ctx)
		}
		return "slow", nil
	})
	model := &brain{think: func(r *llm.Request) llm.Message {
		world("model")
		if replies(r) == 0 {
			return calls(call("prepare", "{}"), call("deploy", "{}"), call("slow", "{}"))
		}
		return llm.Assistant(results(last(r)))
	}}
	s, err := store.Open(ctx, url)
	if err != nil {
		fatal(err)
	}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{prepare, deploy, slow}})
	rt, err := perdure.New(ctx, s, perdure.Options{Lease: 500 * time.Millisecond}, agent.NewFlow("flow", clerk))
	if err != nil {
		fatal(err)
	}
	return rt, func() { _ = s.Close() }
}

func errCheck(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// seedChild is what the processes do.
func seedChild(what, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	rt, end := seedOpen(ctx, func(v ...any) { panic(fmt.Sprint(v...)) }, dir, os.Getenv(seedStore))
	defer end()
	switch what {
	case "start":
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "flow", Input: "go"}); err != nil {
			return err
		}
		go func() {
			// All that can be recorded is: the message, the plain call, the ask.
			seen := 0
			for e, err := range rt.Events(ctx, "t", perdure.EventOptions{}) {
				if err == nil && (e.Kind == "asked" || strings.HasSuffix(e.Path, "0-prepare/run")) {
					seen++
				}
				if seen == 2 {
					break
				}
			}
			select {
			case <-seedSlow:
				fmt.Println("hanging")
			case <-ctx.Done():
			}
		}()
		return rt.Work(ctx)
	case "answer":
		run, err := rt.GetRun(ctx, "t", "")
		if err != nil {
			return err
		}
		if len(run.Asks) != 1 {
			return fmt.Errorf("there are %d asks, the run is %s", len(run.Asks), run.Status)
		}
		fmt.Println("answered")
		return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}})
	}
	work, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(work) }()
	run, err := rt.WaitEnd(ctx, "t", "")
	stop()
	if err = errCheck(err, <-worked); err != nil {
		return err
	}
	out, err := perdure.Output[string](run)
	fmt.Println("output", out)
	return err
}
