package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

var update = flag.Bool("update", false, "write the golden files")

// place is a server or a store that commands work on.
type place struct {
	t     testing.TB
	flags []string
	flows []perdure.Flow
	rt    *perdure.Runtime // of a server
	setUp func(*app)
}

// served is a server with a worker.
func served(t testing.TB) *place {
	t.Helper()
	s := memstore.New()
	p := &place{t: t, flows: testFlows()}
	kept, err := archive.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rt, err := perdure.New(t.Context(), s, perdure.Options{Archive: kept}, p.flows...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Work(ctx) }()
	api := server.New(rt, server.Options{})
	ts := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close()
		ts.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
		s.Close()
	})
	p.rt, p.flags = rt, []string{"--server", ts.URL}
	return p
}

// stored is a store in a file, without a server.
func stored(t testing.TB) *place {
	return &place{t: t, flows: testFlows(), flags: []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "test.db")}}
}

// both runs a test with a server and with a store.
func both(t *testing.T, test func(*testing.T, *place)) {
	t.Run("server", func(t *testing.T) { test(t, served(t)) })
	t.Run("store", func(t *testing.T) { test(t, stored(t)) })
}

// result is what came of a command.
type result struct {
	t        testing.TB
	args     []string
	code     int
	out, err string
}

// run runs a command. Input is what is typed.
func (p *place) run(input string, args ...string) *result {
	p.t.Helper()
	return p.runIn(p.t.Context(), input, args...)
}

func (p *place) runIn(ctx context.Context, input string, args ...string) *result {
	p.t.Helper()
	var out, err buffer
	a := testApp(terminal.Terminal{In: strings.NewReader(input), Out: &out, Err: &err}, p.flows...)
	if p.setUp != nil {
		p.setUp(a)
	}
	code := a.run(ctx, append(append([]string{}, args...), p.flags...))
	return &result{p.t, args, code, out.String(), err.String()}
}

// testApp is a program whose streams are empty, and whose environment is, unless
// they are given.
func testApp(t terminal.Terminal, flows ...perdure.Flow) *app {
	if t.In == nil {
		t.In = strings.NewReader("")
	}
	if t.Out == nil {
		t.Out = io.Discard
	}
	if t.Err == nil {
		t.Err = io.Discard
	}
	if t.Env == nil {
		t.Env = func(string) string { return "" }
	}
	return newApp(&t, Options{}, "", flows)
}

// buffer is what several goroutines may write to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// want fails unless the command ended with a code, and its output and its
// messages together hold all texts.
func (r *result) want(code int, texts ...string) *result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("perdure %s ended with %d, want %d\n%s%s", strings.Join(r.args, " "), r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			r.t.Errorf("perdure %s does not say %q:\n%s%s", strings.Join(r.args, " "), text, r.out, r.err)
		}
	}
	return r
}

// wantWords is want, wherever lines break.
func (r *result) wantWords(code int, texts ...string) *result {
	r.t.Helper()
	joined := *r
	joined.out, joined.err = strings.Join(strings.Fields(r.out), " "), " "+strings.Join(strings.Fields(r.err), " ")
	joined.want(code, texts...)
	return r
}

// only fails unless the output is a text.
func (r *result) only(out string) *result {
	r.t.Helper()
	if diff := cmp.Diff(out, r.out); diff != "" {
		r.t.Errorf("the output of perdure %s (-want +got):\n%s", strings.Join(r.args, " "), diff)
	}
	return r
}

// golden compares a text with a file.
func golden(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", file, diff)
	}
}

var changing = []struct {
	re *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d|\d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-z]{24}\b`), "ID"},
	{regexp.MustCompile(`(?m)(^|\s)([0-9a-z]{30,}\.)?[\w-]{16}(\s|$)`), "${1}ASK$3"},
	{regexp.MustCompile(`took [\d.]+\S+`), "took LONG"},
	{regexp.MustCompile(`TIME +[\d.]+(µs|ms|s) `), "TIME  "},
	{regexp.MustCompile(` (--server http|--store sqlite)\S+`), ""},
	{regexp.MustCompile(`(\S) {3,}`), "$1  "},
}

// steady replaces what is another at each run: ids and times.
func steady(text string) string {
	for _, c := range changing {
		text = c.re.ReplaceAllString(text, c.as)
	}
	return text
}

var errBroken = errors.New("the supplier is \x1b[31mclosed\x1b[0m")

// testFlows are flows that do what commands look at.
func testFlows() []perdure.Flow {
	notes := perdure.NewState[string]("note")
	order := perdure.NewFlow("order", func(ctx context.Context, item string) (string, error) {
		if err := perdure.Plan(ctx, "price", "approve", "buy"); err != nil {
			return "", err
		}
		price, err := perdure.Step(ctx, "price", func(ctx context.Context) (int, error) {
			return 42, errors.Join(notes.Set(ctx, "asked for "+item), perdure.Spend(ctx, "calls", 1))
		})
		if err != nil {
			return "", err
		}
		ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: "Buy " + item + "?", Data: map[string]int{"price": price}})
		if err != nil {
			return "", err
		}
		if !ok {
			return "not bought", nil
		}
		return perdure.Step(ctx, "buy", func(ctx context.Context) (string, error) { return "bought " + item, notes.Set(ctx, "bought") })
	})
	echo := perdure.NewFlow("echo", func(ctx context.Context, in any) (any, error) {
		return perdure.Step(ctx, "say", func(ctx context.Context) (any, error) { return in, nil })
	})
	fail := perdure.NewFlow("fail", func(ctx context.Context, _ any) (string, error) {
		return perdure.Step(ctx, "call", func(ctx context.Context) (string, error) { return "", errBroken })
	})
	var tried sync.Map
	flaky := perdure.NewFlow("flaky", func(ctx context.Context, _ any) (string, error) {
		return perdure.Step(ctx, "call", func(ctx context.Context) (string, error) {
			if _, again := tried.LoadOrStore(perdure.Key(ctx), true); !again {
				return "", errors.New("connection refused")
			}
			return "reached", nil
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Millisecond}))
	})
	wait := perdure.NewFlow("wait", func(ctx context.Context, _ any) (string, error) {
		return perdure.Receive[string](ctx, "paid", "payment", 0)
	})
	pay := agent.NewTool("pay", "Pay an amount.", func(ctx context.Context, in struct {
		Amount int `json:"amount"`
	}) (string, error) {
		return "paid", nil
	}, agent.NeedsApproval())
	open := agent.NewTool("open", "Open the vault.", func(ctx context.Context, _ struct{}) (string, error) {
		if secret, err := credentials.Secret(ctx, "vault"); err != nil || secret != "s3cret" {
			return "", errors.Join(err, errors.New("the secret is wrong"))
		}
		return "opened", nil
	}, agent.Needs(agent.Credential{Name: "vault", Prompt: "The code of the vault?"}))
	model := script.Must(script.Parse("test.yaml", []byte(`
rules:
  - when: {tool: pay}
    text: "The tool says: {{.Result \"pay\"}}."
  - when: {tool: open}
    text: '{{.Result "open"}}'
  - when: {last: open}
    calls: [{name: open, args: {}}]
  - when: {last: {regexp: 'pay (\d+)'}}
    text: I have to ask.
    calls: [{name: pay, args: '{"amount": {{.Match 1}}}'}]
default:
  text: "I can only pay."
`)))
	clerk := agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Instruction: "You pay.", Tools: []agent.Tool{pay}}))
	standing := agent.NewFlow("standing", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{
		pay.With(agent.WithApproval(agent.Approval{Decisions: []string{agent.DecisionApprove, agent.DecisionAlways}}))}}))
	vault := agent.NewFlow("vault", agent.New("guard", model, agent.Options{Instruction: "You guard.", Tools: []agent.Tool{open}}))
	return []perdure.Flow{standing, vault, order, echo, fail, flaky, wait, clerk}
}

var _ io.Writer = (*buffer)(nil)
