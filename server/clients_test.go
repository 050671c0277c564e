//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/freeport"
	"github.com/perdure/perdure/internal/npm"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
)

//go:embed testdata/clients/package.json
var clientsManifest []byte

//go:embed testdata/clients/package-lock.json
var clientsLock []byte

// clientModules returns the folder of the npm packages whose clients are tested.
// Without npm the test is skipped, but not in CI.
func clientModules(t testing.TB) string {
	t.Helper()
	module, err := npm.Install("clients", clientsManifest, clientsLock, "eventsource")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("the proof with real clients cannot run: %v", err)
	}
	if err != nil {
		t.Skipf("skipped, because the proof with real clients cannot run: %v", err)
	}
	return filepath.Dir(module)
}

const proofEnv = "PERDURE_PROOF_SERVER"

// proofOrder tells a process what to serve.
type proofOrder struct{ URL, Addr, Origin string }

// proofText is what step i of a run says, word by word.
func proofText(run string, i int) []string {
	words := make([]string, 3+i%5)
	for w := range words {
		words[w] = fmt.Sprintf("%s-%d-%d ", run, i, w)
	}
	return words
}

var proofTalk = perdure.NewFlow("talk", func(ctx context.Context, in struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
}) (int, error) {
	for i := range in.Steps {
		_, err := perdure.Step(ctx, fmt.Sprint("say-", i), func(ctx context.Context) (string, error) {
			text := ""
			for _, word := range proofText(in.Name, i) {
				perdure.Delta(ctx, word)
				text += word
				time.Sleep(time.Millisecond) // a model takes its time, too
			}
			return text, nil
		})
		if err != nil {
			return i, err
		}
	}
	return in.Steps, nil
})

// TestProofServer is no test but the process that others start and kill.
func TestProofServer(t *testing.T) {
	text := os.Getenv(proofEnv)
	if text == "" {
		return
	}
	var order proofOrder
	servertest.Check(t, json.Unmarshal([]byte(text), &order))
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	ctx := context.Background()
	s := servertest.Must(store.Open(ctx, order.URL))(t)
	rt := servertest.Must(perdure.New(ctx, s, perdure.Options{Lease: 300 * time.Millisecond}, proofTalk))(t)
	l := servertest.Must(net.Listen("tcp", order.Addr))(t)
	go rt.Work(ctx)
	fmt.Println("~serving")
	h := server.New(rt, server.Options{Retry: 10 * time.Millisecond, Origins: []string{order.Origin}}).HTTPServer()
	t.Fatal(h.Serve(l))
}

// proofServer is a process that serves.
type proofServer struct {
	cmd  *exec.Cmd
	stop io.Closer
}

func startProof(t *testing.T, order proofOrder) *proofServer {
	t.Helper()
	data, _ := json.Marshal(order)
	cmd := exec.Command(os.Args[0], "-test.run=^TestProofServer$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), proofEnv+"="+string(data))
	cmd.Stderr = os.Stderr
	in := servertest.Must(cmd.StdinPipe())(t)
	out := servertest.Must(cmd.StdoutPipe())(t)
	servertest.Check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if lines.Text() == "~serving" {
			go io.Copy(io.Discard, out)
			return &proofServer{cmd, in}
		}
		said = append(said, lines.Text())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("the server process does not start: %s", strings.Join(said, "\n"))
	return nil
}

// kill ends the process as a power cut does.
func (p *proofServer) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	p.stop.Close()
}

// proofProxy passes connections on and cuts them after a random number of
// bytes.
type proofProxy struct {
	net.Listener
	target string
	cuts   atomic.Int64
	gentle atomic.Bool // no cuts any more
	wg     sync.WaitGroup
	mu     sync.Mutex
	rng    *rand.Rand
	open   map[net.Conn]bool
}

func newProofProxy(t *testing.T, target string) *proofProxy {
	t.Helper()
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proofProxy{Listener: l, target: target, rng: rand.New(rand.NewPCG(1, 2)), open: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// serve passes one connection on.
func (p *proofProxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	p.open[c] = true
	p.mu.Unlock()
	defer p.forget(c)
	// The request first: the fetch of some versions of Node never settles if
	// its connection is closed before it has sent anything.
	request := make([]byte, 4<<10)
	n, err := c.Read(request)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the server is dead
	}
	defer p.forget(up)
	defer up.Close()
	if _, err := up.Write(request[:n]); err != nil {
		return
	}
	p.mu.Lock()
	p.open[up] = true
	left := int64(1 + p.rng.IntN(6000))
	hard := p.rng.IntN(2) == 0
	p.mu.Unlock()
	go func() {
		io.Copy(up, c)
		up.Close()
	}()
	buf := make([]byte, 512)
	for {
		n, err := up.Read(buf)
		cut := int64(n) >= left && !p.gentle.Load()
		if cut {
			n = int(left)
		}
		left -= int64(n)
		if _, werr := c.Write(buf[:n]); werr != nil || err != nil {
			return
		}
		if cut {
			p.cuts.Add(1)
			if hard {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			return
		}
		left = max(left, 1)
	}
}

func (p *proofProxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

//go:embed testdata/follow.js
var proofFollow []byte

// proofClient is what both clients run: it follows the thread, keeps what it
// is told, and reports it when the signal "end" arrives.
const proofClient = `
export function prove(follow, url, kinds, report, hears, Source) {
  const events = [], shown = {}, flaws = [], done = new Set();
  let deltas = 0;
  follow(url, kinds, {
    onEvent(event, e) {
      events.push({ id: e.lastEventId, kind: e.type, data: e.data });
      const key = event.run + event.path;
      if (event.kind === "step") {
        if (key in shown && !event.value.startsWith(shown[key])) flaws.push("live " + shown[key] + " became " + event.value);
        shown[key] = event.value;
        done.add(key); // in the order of the journal
      }
      if (event.kind === "signal") report({ events, flaws, deltas, text: [...done].map((key) => shown[key]).join("") });
    },
    onText(d, text) {
      if (deltas++ === 0) hears();
      if (done.has(d.run + d.path)) flaws.push("a delta behind its step: " + d.path);
      shown[d.run + d.path] = text;
    },
    onError(problem) { flaws.push(JSON.stringify(problem)); report({ events, flaws, deltas, text: "" }); },
  }, Source);
}
`

// proofReport is what a client has seen.
type proofReport struct {
	Events []struct{ ID, Kind, Data string }
	Flaws  []string
	Deltas int
	Text   string
}

// proofSite serves the scripts and takes the reports.
func proofSite(t *testing.T, url string) (_ *httptest.Server, _ map[string]chan proofReport, hearing *atomic.Int64) {
	hearing = new(atomic.Int64) // clients that have heard a delta
	kinds := []string{}
	for _, k := range api.EventKinds {
		kinds = append(kinds, k.Name)
	}
	list, _ := json.Marshal(kinds)
	reports := map[string]chan proofReport{"chromium": make(chan proofReport, 1), "node": make(chan proofReport, 1)}
	mux := http.NewServeMux()
	script := func(data string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			io.WriteString(w, data)
		}
	}
	mux.HandleFunc("/follow.mjs", script(string(proofFollow)))
	mux.HandleFunc("/prove.mjs", script(proofClient))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>proof</title><script type="module">
import { follow } from "/follow.mjs";
import { prove } from "/prove.mjs";
prove(follow, %q, %s, (r) => fetch("/report/chromium", { method: "POST", body: JSON.stringify(r) }), () => fetch("/hears", { method: "POST" }));
</script>`, url, list)
	})
	mux.HandleFunc("POST /hears", func(http.ResponseWriter, *http.Request) { hearing.Add(1) })
	mux.HandleFunc("POST /report/{who}", func(w http.ResponseWriter, r *http.Request) {
		var report proofReport
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			t.Errorf("the report of %s: %v", r.PathValue("who"), err)
		}
		select {
		case reports[r.PathValue("who")] <- report:
		default:
			t.Errorf("%s reports again", r.PathValue("who"))
		}
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	mux.HandleFunc("/node.mjs", script(fmt.Sprintf(`
import { EventSource } from "eventsource";
import { follow } from "./follow.mjs";
import { prove } from "./prove.mjs";
let source;
setInterval(() => console.error("state", source?.readyState), 5000); // also: the package's own timer does not keep Node alive
prove(follow, %q, %s, async (r) => {
  await fetch(%q, { method: "POST", body: JSON.stringify(r) });
  process.exit(0);
}, () => fetch(%q, { method: "POST" }), class extends EventSource {
  constructor(url) {
    super(url);
    source = this;
    this.addEventListener("error", (e) => console.error(this.readyState, e.code, e.message));
  }
});
`, url, list, site.URL+"/report/node", site.URL+"/hears")))
	return site, reports, hearing
}

// background starts a program that ends with the test.
func background(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	log := servertest.Must(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	cmd.Stdout, cmd.Stderr = log, log
	servertest.Check(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("%s said: %s", name, data)
		}
	})
}

// startNode follows a thread with the npm package eventsource.
func startNode(t *testing.T, site string) {
	t.Helper()
	dir := t.TempDir()
	servertest.Check(t, os.Symlink(clientModules(t), filepath.Join(dir, "node_modules")))
	for _, name := range []string{"follow.mjs", "prove.mjs", "node.mjs"} {
		resp := servertest.Must(http.Get(site + "/" + name))(t)
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		servertest.Check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	background(t, dir, "node", "node.mjs")
}

// TestRealClientsLoseNothing lets clients that others wrote follow a thread
// while their connections are cut and the server is killed.
func TestRealClientsLoseNothing(t *testing.T) {
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "sqlite" {
				t.Skip("make long has the other stores")
			}
			realClients(t, url(t))
		})
	}
}

func realClients(t *testing.T, url string) {
	kills, cuts := 20, int64(500)
	if testing.Short() {
		kills, cuts = 3, 30
	}
	addr, _ := freeport.For(t)
	proxy := newProofProxy(t, addr)
	site, reports, hearing := proofSite(t, "http://"+proxy.Addr().String()+"/v1/threads/proof/events")
	order := proofOrder{URL: url, Addr: addr, Origin: site.URL}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s := servertest.Must(store.Open(ctx, order.URL))(t)
	defer s.Close()
	rt := servertest.Must(perdure.New(ctx, s, perdure.Options{}, proofTalk))(t)
	started := 0
	start := func() {
		started++
		name := fmt.Sprint("run", started)
		servertest.Must(rt.Start(ctx, perdure.StartRequest{Thread: "proof", Flow: "talk", Key: name, Input: map[string]any{"name": name, "steps": 40}}))(t)
	}
	start()
	serving := startProof(t, order)
	defer func() { serving.kill() }()
	startNode(t, site.URL)
	openBrowser(t, site.URL+"/")

	// Each life of the server gets some steps done, so that it is not taken
	// for a poison of the run.
	killed := 0
	next := 8
	for ev, err := range rt.Events(ctx, "proof", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == "ended" {
			if killed >= kills && proxy.cuts.Load() >= cuts {
				if hearing.Load() == 2 {
					break
				}
				proxy.gentle.Store(true) // who is cut off again and again never catches up with the runs
			}
			start()
		}
		if ev.Kind != "step" {
			continue
		}
		if next--; next == 0 && killed < kills {
			serving.kill()
			serving = startProof(t, order)
			killed++
			next = 8 + killed%7
		}
	}
	if killed < kills || proxy.cuts.Load() < cuts {
		t.Fatalf("%d kills and %d cuts", killed, proxy.cuts.Load())
	}
	servertest.Check(t, rt.Signal(ctx, "proof", "end", true, perdure.SignalOptions{}))
	proxy.gentle.Store(true)
	text := ""
	var journal []string
	for ev, err := range rt.Events(ctx, "proof", perdure.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(ev)
		journal = append(journal, string(data))
		var said string
		if ev.Kind == "step" && json.Unmarshal(ev.Value, &said) == nil {
			text += said
		}
		if ev.Kind == "signal" {
			break
		}
	}
	want := ""
	for run := range started {
		for i := range 40 {
			want += strings.Join(proofText(fmt.Sprint("run", run+1), i), "")
		}
	}
	if text != want {
		t.Error("the recorded text is not what was said")
	}
	for who, reported := range reports {
		var r proofReport
		select {
		case r = <-reported:
		case <-ctx.Done():
			t.Fatalf("%s reports nothing; %d cuts", who, proxy.cuts.Load())
		}
		t.Logf("%s saw %d events and %d deltas; %d cuts, %d kills", who, len(r.Events), r.Deltas, proxy.cuts.Load(), killed)
		if len(r.Flaws) > 0 {
			t.Errorf("%s: %q", who, r.Flaws[:min(len(r.Flaws), 10)])
		}
		if r.Text != text {
			t.Errorf("%s: the text that it ends with is not the recorded one", who)
		}
		if r.Deltas == 0 {
			t.Errorf("%s saw no delta", who)
		}
		if len(r.Events) != len(journal) {
			t.Errorf("%s: %d events, the journal has %d", who, len(r.Events), len(journal))
		}
		for i, ev := range r.Events[:min(len(r.Events), len(journal))] {
			if ev.ID != fmt.Sprint(i+1) || ev.Data != journal[i] {
				t.Errorf("%s: event %d is %s %s, the journal has %s", who, i+1, ev.ID, ev.Data, journal[i])
				break
			}
		}
	}
}

// pageScripts is what a page of the tests runs: the function of docs/events.md
// and the npm package fetch-event-source, on a thread whose runs it starts.
const pageScripts = `<!doctype html><title>events</title><script type="module">
import { follow } from "/follow.mjs";
import { fetchEventSource } from "/node_modules/@microsoft/fetch-event-source/lib/esm/index.js";
const thread = "/v1/threads/chat";
const start = () => fetch(thread + "/runs", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ flow: "clerk", input: "hi" }) });
window.byFollow = new Promise((resolve) => {
  const texts = [], deltas = [], sources = [];
  class Kept extends EventSource {
    constructor(url) { super(url); sources.push(this); }
  }
  const stop = follow(new URL(thread + "/events", location), ["created", "ended"], {
    onEvent(e) {
      if (e.kind === "created" || !texts.length) return start(); // until a delta has come through
      stop();
      resolve({ texts, deltas, states: sources.map((s) => s.readyState) });
    },
    onText(d, text) { deltas.push(d); texts.push(text); },
  }, Kept);
});
window.byFetch = () => new Promise(async (resolve, reject) => {
  await start();
  let opened = 0;
  const kinds = [];
  fetchEventSource(thread + "/events?run=newest&deltas=no", {
    async onopen() { if (++opened > 1) throw new Error("it connects again after " + kinds); },
    onmessage(m) { JSON.parse(m.data); kinds.push(m.event); },
    onclose() { resolve(kinds); },
    onerror(err) { reject(err); throw err; },
  });
});
</script>`

// The function of the docs shows what agents say, deltas are as their schema has
// them, and fetch-event-source reads a stream, comments included, at once.
func TestBrowserFollowsAnAgent(t *testing.T) {
	model := script.New(script.Reply{When: func(*llm.Request) bool { return true },
		Reasoning: "They greet.", Text: "Good morning, what can I do for you?", Chunks: 12, Delay: 10 * time.Millisecond})
	s := servertest.New(t, server.Options{Heartbeat: 5 * time.Millisecond}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{})))
	s.Do("POST", "/v1/threads", `{"id":"chat"}`).Want(201)
	modules := http.Dir(clientModules(t))
	mux := http.NewServeMux()
	mux.Handle("/v1/", s.Server)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, pageScripts)
	})
	mux.HandleFunc("/follow.mjs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		w.Write(proofFollow)
	})
	mux.HandleFunc("/node_modules/", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/node_modules/")
		if filepath.Ext(name) == "" { // as bundlers find it
			name += ".js"
		}
		http.ServeFileFS(w, r, os.DirFS(string(modules)), name)
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	p := openBrowser(t, site.URL)
	p.Until("window.byFetch")
	var got struct {
		Texts  []string
		Deltas []json.RawMessage
		States []int
	}
	p.Eval("window.byFollow", &got)
	if len(got.States) == 0 || slices.ContainsFunc(got.States, func(state int) bool { return state != 2 }) {
		t.Errorf("after its end, the connections are %v, and not all closed", got.States)
	}
	for _, text := range got.Texts {
		if !strings.HasPrefix("Good morning, what can I do for you?", text) {
			t.Errorf("the page shows %q", text)
		}
	}
	whole, piece := schemaOf(t, "delta"), schemaOf(t, "piece")
	for _, raw := range got.Deltas {
		var v map[string]any
		servertest.Check(t, json.Unmarshal(raw, &v))
		if err := whole.Validate(v); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if err := piece.Validate(v["data"]); err != nil || !strings.HasSuffix(v["path"].(string), "/reply") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	var kinds []string
	p.Eval("window.byFetch()", &kinds)
	if all := strings.Join(kinds, " "); !strings.HasPrefix(all, "queued ") || !strings.HasSuffix(all, " ended done") {
		t.Errorf("fetch-event-source reads %s", all)
	}
}

// schemaOf returns a schema of docs/events.schema.json in which no member is
// unknown.
func schemaOf(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	data := servertest.Must(api.EventSchemas())(t)
	var all struct {
		Defs map[string]*jsonschema.Schema `json:"$defs"`
	}
	servertest.Check(t, json.Unmarshal(data, &all))
	s := all.Defs[name]
	s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	return servertest.Must(s.Resolve(nil))(t)
}
