//go:build unix

package mcpface_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/internal/freeport"
	"github.com/perdure/perdure/internal/npm"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm/script"
)

//go:embed testdata/clients/package.json
var manifest []byte

//go:embed testdata/clients/package-lock.json
var lock []byte

// commandEnv makes the test's binary a program with flows, and ledgerEnv names the file
// in which it records what its tools do.
const (
	commandEnv = "PERDURE_MCP_COMMAND"
	ledgerEnv  = "PERDURE_MCP_LEDGER"
)

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) == "" {
		os.Exit(m.Run())
	}
	note := func(text string) error {
		f, err := os.OpenFile(os.Getenv(ledgerEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		fmt.Println("a tool prints", text) // which must not get into the protocol
		_, err = fmt.Fprintln(f, text)
		return errors.Join(err, f.Close())
	}
	look := agent.NewTool("look", "Looks.", func(ctx context.Context, _ struct{}) (string, error) {
		time.Sleep(300 * time.Millisecond) // a service takes its time
		return "it is there", note("look")
	})
	refund := agent.NewTool("refund", "Refunds.", func(_ context.Context, in struct {
		Amount int `json:"amount"`
	}) (string, error) {
		return "refunded", note(fmt.Sprint("refund ", in.Amount))
	}, agent.NeedsApproval())
	model := script.New(script.Call("look", "{}"), script.Call("refund", `{"amount":70}`), script.Say("done"))
	clerk := agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{look, refund}}))
	os.Exit(cli.Run(context.Background(), cli.Options{Args: os.Args[1:], Runtime: perdure.Options{Lease: 500 * time.Millisecond}}, clerk))
}

// program is the test's binary as a program with flows.
func program(t *testing.T, ledger string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), commandEnv+"=1", ledgerEnv+"="+ledger, "PERDURE_STORE=", "PERDURE_SERVER=", "XDG_STATE_HOME="+t.TempDir())
	cmd.Dir = t.TempDir()
	cmd.Stderr = os.Stderr
	if !testing.Verbose() {
		cmd.Stderr = nil
	}
	return cmd
}

// process is a program that was started.
type process struct {
	*exec.Cmd
	ended chan struct{}
}

// start starts a program, which ends with the test.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	servertest.Check(t, cmd.Start())
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill kills it with SIGKILL.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// serveStore serves a store, and returns when the server answers.
func serveStore(t *testing.T, ledger, store, addr string) *process {
	t.Helper()
	p := start(t, program(t, ledger, "serve", "--store", store, "--addr", addr))
	for {
		if resp, err := http.Get("http://" + addr + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p
			}
		}
		select {
		case <-p.ended:
			t.Fatal("the server ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// makeToken makes a token of a store.
func makeToken(t *testing.T, store string) string {
	t.Helper()
	out := servertest.Must(program(t, os.DevNull, "token", "create", "agent", "--scopes", "read,run,answer", "--store", store, "--json").Output())(t)
	var made struct{ Secret string }
	servertest.Check(t, json.Unmarshal(out, &made))
	return made.Secret
}

// Both official clients for TypeScript operate a run whose server is killed, over HTTP
// and through perdure mcp: nothing is lost, done twice, or seen twice.
func TestRealClientsLoseNothing(t *testing.T) {
	module, err := npm.Install("mcp-clients", manifest, lock, "@modelcontextprotocol", "client")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("the proof with real clients cannot run: %v", err)
	}
	if err != nil {
		t.Skipf("skipped, because the proof with real clients cannot run: %v", err)
	}
	modules := filepath.Dir(filepath.Dir(filepath.Dir(module)))
	for _, sdk := range []int{1, 2} {
		for _, way := range []string{"http", "stdio"} {
			t.Run(fmt.Sprint(way, "-", sdk), func(t *testing.T) {
				if testing.Short() && (sdk == 1) == (way == "http") {
					t.Skip("the other two are the short form")
				}
				t.Parallel()
				addr, _ := freeport.For(t)
				ledger, store := filepath.Join(t.TempDir(), "ledger"), "sqlite:"+filepath.Join(t.TempDir(), "p.db")
				token := makeToken(t, store)
				server := serveStore(t, ledger, store, addr)
				order := map[string]any{"sdk": sdk, "token": token}
				if way == "http" {
					order["url"] = "http://" + addr + "/mcp"
				} else {
					order["command"], order["args"] = os.Args[0], []string{"mcp", "--server", "http://" + addr}
					order["env"] = map[string]string{commandEnv: "1", ledgerEnv: ledger, "PERDURE_TOKEN": token}
				}
				text, _ := json.Marshal(order)
				node := exec.Command("node", "testdata/drive.mjs", modules, string(text))
				var stderr strings.Builder
				node.Stderr = &stderr
				out := servertest.Must(node.StdoutPipe())(t)
				servertest.Check(t, node.Start())
				t.Cleanup(func() { _ = node.Process.Kill() })
				done := ""
				for lines := bufio.NewScanner(out); lines.Scan(); {
					switch text, ok := strings.CutPrefix(lines.Text(), "~done "); {
					case ok:
						done = text
					case lines.Text() == "~started":
						server.kill()
						serveStore(t, ledger, store, addr)
					}
				}
				if err := node.Wait(); err != nil || done == "" {
					t.Fatalf("%v: %s", err, stderr.String())
				}
				t.Log(done)
				checkLedger(t, ledger)
			})
		}
	}
}

// checkLedger fails unless the refund was made once, as it was edited. Looking may be
// repeated when a process dies while it looks.
func checkLedger(t *testing.T, ledger string) {
	t.Helper()
	data := servertest.Must(os.ReadFile(ledger))(t)
	if refunds := strings.Count(string(data), "refund"); refunds != 1 || !strings.Contains(string(data), "refund 5\n") {
		t.Errorf("what was done:\n%s", data)
	}
}

// Go's client operates a store through perdure mcp alone, which is killed: what it
// began continues in the next one.
func TestStoreThroughStandardInput(t *testing.T) {
	ledger, store := filepath.Join(t.TempDir(), "ledger"), "sqlite:"+filepath.Join(t.TempDir(), "p.db")
	makeToken(t, store) // which makes the store
	connect := func(flags ...string) (*coder, *exec.Cmd) {
		cmd := program(t, ledger, append([]string{"mcp", "--store", store}, flags...)...)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		return &coder{TB: t, ClientSession: session}, cmd
	}
	a, cmd := connect()
	var h struct{ Thread, Run string }
	a.call("flow_clerk", args{"input": "refund order 7", "idempotency_key": "once"}, &h)
	servertest.Check(t, cmd.Process.Kill())

	a, _ = connect()
	first := h
	if a.call("flow_clerk", args{"input": "refund order 7", "idempotency_key": "once"}, &h); h != first {
		t.Fatalf("%v, and before it was %v", h, first)
	}
	var f struct {
		Next string
		Over bool
		Done struct{ Asks []struct{ ID string } }
	}
	for !f.Over {
		a.call("events_follow", args{"thread": h.Thread, "run": h.Run, "after": f.Next}, &f)
	}
	if len(f.Done.Asks) != 1 {
		t.Fatalf("%+v", f)
	}

	reader, _ := connect("--read-only")
	if tools := reader.tools(); tools["asks_answer"] != nil || tools["flow_clerk"] != nil || tools["asks_get"] == nil {
		t.Errorf("tools that only read: %v", tools)
	}
	answer := args{"ask": f.Done.Asks[0].ID, "decision": "edit", "value": map[string]int{"amount": 5}}
	reader.fails("scope", "asks_answer", answer)
	if res := reader.call("asks_get", args{"ask": f.Done.Asks[0].ID}, nil); !strings.Contains(text(res), `"open"`) {
		t.Errorf("the ask is %s", text(res))
	}

	a.call("asks_answer", answer, nil)
	var waited of[struct{ Over bool }]
	for !waited.Result.Over {
		a.call("runs_wait", args{"thread": h.Thread}, &waited)
	}
	var ask of[struct{ Answer struct{ By string } }]
	if a.call("asks_get", args{"ask": f.Done.Asks[0].ID}, &ask); ask.Result.Answer.By != "mcp" {
		t.Errorf("the answer is by %q", ask.Result.Answer.By)
	}
	checkLedger(t, ledger)
	if err := a.Close(); err != nil { // the input ends, and with it the process
		t.Errorf("at the end: %v", err)
	}
}
