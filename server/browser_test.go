//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/browser"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
)

// pageScripts is what a page of the tests runs: the function of docs/events.md
// and the npm package fetch-event-source, on a thread whose runs it starts.
const pageScripts = `<!doctype html><title>events</title><script type="module">
import { follow } from "/follow.mjs";
import { fetchEventSource } from "/node_modules/@microsoft/fetch-event-source/lib/esm/index.js";
const thread = "/v1/threads/chat";
const start = () => fetch(thread + "/runs", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ flow: "clerk", input: "hi" }) });
window.byFollow = new Promise((resolve) => {
  const texts = [], deltas = [];
  const stop = follow(new URL(thread + "/events", location), ["created", "ended"], {
    onEvent(e) {
      if (e.kind === "created" || !texts.length) return start(); // until a delta has come through
      stop();
      resolve({ texts, deltas });
    },
    onText(d, text) { deltas.push(d); texts.push(text); },
  });
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
	modules := http.Dir(servertest.Clients(t))
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
	p := browser.Open(t, site.URL)
	p.Until("window.byFetch")
	var got struct {
		Texts  []string
		Deltas []json.RawMessage
	}
	p.Eval("window.byFollow", &got)
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
	resolved := servertest.Must(s.Resolve(nil))(t)
	return resolved
}
