//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/browser"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/store/sqlitestore"
)

//go:embed testdata/follow.js
var proofFollow []byte

// proofClient is what both clients run: it follows the thread, keeps what it
// is told, and reports it when the signal "end" arrives.
const proofClient = `
export function prove(follow, url, kinds, report, Source) {
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
      deltas++;
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
func proofSite(t *testing.T, url string) (*httptest.Server, map[string]chan proofReport) {
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
prove(follow, %q, %s, (r) => fetch("/report/chromium", { method: "POST", body: JSON.stringify(r) }));
</script>`, url, list)
	})
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
}, class extends EventSource {
  constructor(url) {
    super(url);
    source = this;
    this.addEventListener("error", (e) => console.error(this.readyState, e.code, e.message));
  }
});
`, url, list, site.URL+"/report/node")))
	return site, reports
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
	servertest.Check(t, os.Symlink(servertest.Clients(t), filepath.Join(dir, "node_modules")))
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
	const kills, cuts = 20, 500
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	l.Close()
	proxy := newProofProxy(t, addr)
	site, reports := proofSite(t, "http://"+proxy.Addr().String()+"/v1/threads/proof/events")
	order := proofOrder{Path: filepath.Join(t.TempDir(), "proof.db"), Addr: addr, Origin: site.URL}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s := servertest.Must(sqlitestore.Open(ctx, order.Path, sqlitestore.Options{}))(t)
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
	browser.Open(t, site.URL+"/")

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
				break
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
