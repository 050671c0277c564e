//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// docTests are commands and blocks of the docs that a test of their own runs, by
// their first line, with the file that the test is in.
var docTests = map[string]string{
	"go run ./cmd/perdure demo":                                                      "cmd/perdure/demo_test.go TestDemoTellsWhatHappened",
	"go run ./examples/approval":                                                     "examples/approval/main_test.go TestSurvivesKills",
	"go test -v -run TestSurvivesKills ./examples/approval":                          "examples/approval/main_test.go TestSurvivesKills",
	"go run ./examples/research/run":                                                 "examples/research/run/main_test.go TestSurvivesKills",
	"// Follows a thread. Every event is reported once, in order, however often the": "server/clients_test.go TestBrowserFollowsAnAgent",
	"<!doctype html>":                                                                "server/guide_test.go TestChatOfTheGuide",
	"go run . dev":                                                                   "cmd/perdure/dev_test.go TestDevServesAndWorks",
	`go run . run clerk "Please refund order A-17"`:                                  "cmd/perdure/init_test.go TestInitMakesAProjectThatRuns",
	"go run . asks":                                                                  "cmd/perdure/init_test.go TestInitMakesAProjectThatRuns",
	"go run . answer ASK --approve":                                                  "cmd/perdure/init_test.go TestInitMakesAProjectThatRuns",
	"go run . show THREAD":                                                           "cmd/perdure/init_test.go TestInitMakesAProjectThatRuns",
}

// docPrograms are what stands around a block of Go, by its first line, to make a
// program of it, and what that prints.
var docPrograms = map[string]struct{ around, args, prints string }{
	"func refund(ctx context.Context, order string) (string, error) {": {`
import ("context"; "fmt"; "github.com/perdure/perdure")
func main() {
	ctx := context.Background()
	rt, err := perdure.Open(ctx, "memory:", perdure.NewFlow("refund", refund))
	if err != nil { panic(err) }
	go rt.Work(ctx)
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-17"})
	if err == nil { run, err = rt.Wait(ctx, run.Thread, run.ID) }
	if err == nil { err = rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}}) }
	if err == nil { run, err = rt.WaitEnd(ctx, run.Thread, run.ID) }
	fmt.Println(string(run.Output), err)
}`, "", "\"refunded 42 €\" <nil>\n"},
	`var refund = agent.NewTool("refund", "Refund an order.",`: {`
import ("context"; "fmt"; "github.com/perdure/perdure"; "github.com/perdure/perdure/agent"; "github.com/perdure/perdure/llm/openai")
type Refund struct{ Order string }
type Receipt struct{ Number int }
func pay(context.Context, string, Refund) (Receipt, error) { return Receipt{}, nil }
func main() {
	rt, err := perdure.Open(context.Background(), "memory:", perdure.NewFlow("triage", triage))
	fmt.Println(rt.Flows(), err)
}`, "", "[triage] <nil>\n"},
	"func plan(ctx context.Context, rt *perdure.Runtime) (*perdure.Schedule, error) {": {`
import ("context"; "fmt"; "github.com/perdure/perdure"; _ "github.com/perdure/perdure/cron")
func main() {
	ctx := context.Background()
	rt, err := perdure.Open(ctx, "memory:", perdure.NewFlow("research", func(_ context.Context, q string) (string, error) { return q, nil }))
	if err != nil { panic(err) }
	s, err := plan(ctx, rt)
	if err != nil { panic(err) }
	fmt.Println(s.ID, s.Cron, s.Zone)
}`, "", "digest 0 9 * * MON-FRI Europe/Berlin\n"},
	"func main() {": {`
import ("context"; "github.com/perdure/perdure"; "github.com/perdure/perdure/cli")
func triage(_ context.Context, ticket string) (string, error) { return ticket, nil }
`, "flows --store memory:", "triage\n"},
}

// TestDocsRun runs every block of the README and the docs. A block that is not
// meant to be run is marked as text. Go of the guide is run by package docs/guide.
func TestDocsRun(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	guide, err2 := filepath.Glob("../../docs/guide/*.md")
	if err := errors.Join(err, err2); err != nil || len(pages) < 5 || len(guide) < 5 {
		t.Fatal(pages, guide, err)
	}
	pages = append(pages, guide...)
	used, read := map[string]bool{}, 0
	for _, page := range append(pages, "../../README.md") {
		t.Run(strings.TrimPrefix(page, "../../"), func(t *testing.T) {
			read++
			d := &docRun{t: t, dir: t.TempDir(), used: used}
			for _, b := range kit.Blocks(t, page) {
				d.block(b)
			}
		})
	}
	for known := range docTests {
		if read > len(pages) && !used[known] {
			t.Errorf("no page has %q", known)
		}
	}
}

// docRun runs the blocks of one page, in a folder of its own.
type docRun struct {
	t       *testing.T
	dir     string
	used    map[string]bool
	address string // of the dev server
}

func (d *docRun) block(b kit.Block) {
	d.t.Helper()
	where := fmt.Sprintf("%s:%d", filepath.Base(b.Page), b.Line)
	first, _, _ := strings.Cut(b.Text, "\n")
	switch b.Lang {
	case "text", "go foreign", "python", "output": // docs.TestSnippetsAreCodeThatRuns finds outputs
	case "ts", "tsx": // pieces of programs, which are not compiled here
	case "json":
		if !json.Valid([]byte(b.Text)) {
			d.t.Errorf("%s is not JSON", where)
		}
	case "js", "html":
		if !d.elsewhere(first) {
			d.t.Errorf("%s: no test runs it", where)
		}
	case "go":
		if strings.Contains(b.Page, "docs/guide/") { // docs.TestSnippetsAreCodeThatRuns
			return
		}
		d.program(where, first, b.Text)
	case "sh", "console":
		var want string // what the last command prints
		var command string
		for line := range strings.Lines(b.Text) {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "  #")
			next, prompt := strings.CutPrefix(line, "$ ")
			if b.Lang == "console" && !prompt {
				want += line + "\n"
				continue
			}
			d.shell(where, command, want)
			command, want = next, ""
		}
		d.shell(where, command, want)
	default:
		d.t.Errorf("%s: nothing runs blocks of %q; mark what is not to be run as text", where, b.Lang)
	}
}

// elsewhere reports whether a test of its own runs something.
func (d *docRun) elsewhere(first string) bool {
	d.t.Helper()
	test, known := docTests[first]
	if !known {
		return false
	}
	d.used[first] = true
	file, name, _ := strings.Cut(test, " ")
	source, err := os.ReadFile("../../" + file)
	if err != nil || !strings.Contains(string(source), "\nfunc "+name+"(t *testing.T) {") {
		d.t.Errorf("%s is not in %s: %v", name, file, err)
	}
	return true
}

// shell runs a command.
func (d *docRun) shell(where, command, want string) {
	d.t.Helper()
	command = strings.TrimSpace(command)
	if command == "" || d.elsewhere(command) {
		return
	}
	env := []string{"GOBIN=" + d.dir, "PATH=" + d.dir + ":" + os.Getenv("PATH")}
	exe, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := os.Lstat(d.dir + "/perdure"); err != nil {
		if err := os.Symlink(exe, d.dir+"/perdure"); err != nil {
			d.t.Fatal(err)
		}
	}
	run := func(dir, command string) *process { return launchCommand(d.t, dir, env, "bash", "-ec", command) }
	switch {
	case command == "perdure dev":
		_, address := dev(d.t, d.dir)
		d.address = strings.TrimPrefix(address, "http://")
		return
	case strings.HasPrefix(command, "perdure serve "):
		run(d.dir, "exec "+strings.Replace(command, "0.0.0.0:7373", "127.0.0.1:0", 1)).err.find(d.t, regexp.MustCompile(`(127\.0\.0\.1:\d+)`))
		return
	case strings.HasPrefix(command, "go install "):
		env[0] = "GOBIN=" + d.t.TempDir()
		run("../..", command).ends(0)
		return
	case strings.HasPrefix(command, "go "):
		if got := run("../..", command).ends(0).said.String(); got != want {
			d.t.Errorf("%s: %s prints\n%s", where, command, got)
		}
		return
	case strings.HasPrefix(command, "make "):
		run("../..", strings.Replace(command, "make ", "make -n ", 1)).ends(0)
		return
	}
	command = strings.ReplaceAll(command, "127.0.0.1:7373", d.address)
	if strings.Contains(command, "ASK") || strings.Contains(command, "THREAD") {
		var asks struct{ Asks []perdure.AskInfo }
		call(d.t, "GET", "http://"+d.address+"/v1/asks", "", &asks)
		var threads struct{ Threads []perdure.Summary }
		call(d.t, "GET", "http://"+d.address+"/v1/threads", "", &threads)
		command = strings.ReplaceAll(command, "THREAD", threads.Threads[0].ID)
		if len(asks.Asks) > 0 {
			command = strings.ReplaceAll(command, "ASK", asks.Asks[0].ID)
		}
	}
	p := run(d.dir, command)
	if strings.HasPrefix(command, "curl -N") { // it goes on for ever
		p.until("data: ")
		return
	}
	if code := p.end(); code != 0 && !(code == 4 && strings.HasPrefix(command, "perdure run ")) {
		d.t.Errorf("%s: %s ends with %d: %s%s", where, command, code, p.said.String(), p.err.String())
	}
	if strings.HasPrefix(command, "curl ") && strings.Contains(p.said.String(), "urn:perdure:problem") {
		d.t.Errorf("%s: %s is answered %s", where, command, p.said.String())
	}
}

// program runs a block of Go.
func (d *docRun) program(where, first, text string) {
	d.t.Helper()
	p, known := docPrograms[first]
	if !known {
		d.t.Errorf("%s: docPrograms has nothing around it", where)
		return
	}
	// In this module, so that its packages are found, where ./... passes over it.
	dir, err := os.MkdirTemp(".", "_docs-")
	if err != nil {
		d.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"+p.around+"\n"+text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	program := exec.CommandContext(d.t.Context(), "go", append([]string{"run", "./" + dir}, strings.Fields(p.args)...)...)
	program.Env = append(os.Environ(), beMain+"=", "OPENAI_API_KEY=none")
	out, err := program.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), p.prints) {
		d.t.Errorf("%s prints %s, %v; want %s", where, out, err, p.prints)
	}
}
