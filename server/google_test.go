//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/adk"
)

// googleSite serves an agent that asks for an approval and for the result of a
// call that goes on elsewhere, with the web interface of the kit beside it.
func googleSite(t *testing.T) (s *servertest.Site, ui string) {
	t.Helper()
	type order struct {
		ID     string `json:"id"`
		Amount int    `json:"amount,omitempty"`
	}
	refund := agent.NewTool("refund", "Refunds an order.", func(_ context.Context, o order) (string, error) {
		return fmt.Sprintf("refunded %s with %d", o.ID, o.Amount), nil
	}, agent.NeedsApproval())
	ship := agent.NewTool("ship", "Ships an order.", func(context.Context, order) (string, error) {
		return "", agent.Pending("parcel-7")
	})
	const piece = 5 * time.Millisecond // between two, as a model takes its time
	model := script.New(
		script.Reply{Text: "I look at it.", Calls: []llm.Call{{Name: "refund", Args: `{"id":"A-1","amount":7}`}}, Chunks: 3, Delay: piece},
		script.Reply{Reasoning: "They may like a new one.", Text: "I ship another one.", Calls: []llm.Call{{Name: "ship", Args: `{"id":"A-1"}`}}, Chunks: 3, Delay: piece},
		script.Reply{Text: "It is done, thank you.", Chunks: 4, Delay: piece},
		script.Reply{Text: "You are welcome.", Chunks: 2, Delay: piece})
	s = servertest.New(t, server.Options{Faces: []server.Face{adk.Face()}}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{refund, ship}})))
	mux := http.NewServeMux()
	files := http.Dir(filepath.Join(clientModules(t), "@google", "adk-devtools", "dist", "browser"))
	mux.Handle("/dev-ui/", http.StripPrefix("/dev-ui", http.FileServer(files)))
	mux.Handle("/", s.Server)
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	return s, site.URL + "/dev-ui/?app=clerk"
}

// The web interface of the kit shows what agents say and call once, with pieces
// of replies and without, live and after a reload; a confirmation is no edit,
// and a session can be renamed.
func TestWebInterfaceOfADK(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		if testing.Short() && !streaming {
			continue // part of make long
		}
		t.Run(fmt.Sprint("streaming ", streaming), func(t *testing.T) {
			s, ui := googleSite(t)
			p := openBrowser(t, ui)
			p.Eval(fmt.Sprintf(`localStorage.setItem("adk-use-sse", "%v")`, streaming), nil)
			p.Reload()
			// fill puts a text into a field, and then does something with it, all
			// at once: the page may draw either anew at any time.
			fill := func(field, text, then string) {
				t.Helper()
				p.Until(fmt.Sprintf(`(() => {
					const field = %s;
					if (field.value !== %q) {
						field.value = %[2]q;
						field.dispatchEvent(new Event("input", { bubbles: true }));
						return false;
					}
					return %[3]s;
				})()`, field, text, then))
			}
			click := func(button string) string {
				return fmt.Sprintf(`((b) => !b.disabled && (b.click(), true))(%s)`, button)
			}
			say := func(text string) {
				t.Helper()
				fill(`document.querySelector("app-chat-panel textarea")`, text,
					`(field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })), true)`)
			}
			once := func(when string, texts ...string) {
				t.Helper()
				p.Until(fmt.Sprintf(`document.querySelector("app-chat-panel").innerText.includes(%q)`, texts[len(texts)-1]))
				var shown string
				p.Eval(`document.querySelector("app-chat-panel").innerText`, &shown)
				for _, text := range texts {
					if n := strings.Count(shown, text); n != 1 {
						t.Errorf("%s %q is shown %d times in\n%s", when, text, n, shown)
					}
				}
			}
			const card = `document.querySelector("app-long-running-response `
			say("Refund A-1 please")
			once("with the question", "Refund A-1 please", "I look at it.", "adk_request_confirmation")
			p.Until(card + `input[type=checkbox]").checked || ` + card + `input[type=checkbox]").click()`)
			p.Until(click(card + `button")`))
			once("with the call", "I ship another one.", `ship("A-1")`, "goes on elsewhere as parcel-7")
			fill(card+`input.response-input")`, "arrived", click(card+`button")`))
			all := []string{"Refund A-1 please", "I look at it.", "I ship another one.", `ship("A-1")`, "It is done, thank you."}
			once("at the end", all...)
			var answers []string
			for _, sum := range servertest.All(t, s.Runtime.List(t.Context(), perdure.ListOptions{})) {
				for _, e := range servertest.All(t, s.Runtime.Events(t.Context(), sum.ID, perdure.EventOptions{Replay: true})) {
					if e.Kind == "answered" {
						answers = append(answers, strings.TrimSpace(e.Decision+" "+string(e.Value)))
					}
				}
			}
			if got := fmt.Sprint(answers); got != `[approve "arrived"]` {
				t.Errorf("the answers on record are %s", got)
			}

			// How often the page has read or changed the session. With a new name it
			// does one and then twice the other.
			const loads = `performance.getEntriesByType("resource").filter((e) => /\/users\/user\/sessions\/[^/]+$/.test(e.name)).length`
			var before int
			p.Eval(loads, &before)
			const name = `[...document.querySelectorAll("app-inline-edit")].find((e) => e.querySelector("input").value.startsWith("Refund"))`
			p.Until(click(`document.querySelector(".toolbar-session-group button")`))
			p.Until(click(name + `.querySelector("[aria-label=Edit]")`))
			fill(name+`.querySelector("input")`, "Refund of Ann", click(name+`.querySelector("[aria-label=Save]")`))
			p.Until(`document.querySelector(".toolbar-session-group").innerText.includes("Refund of Ann")`)
			p.Until(fmt.Sprint(loads, ">=", before+3)) // it shows what it then reads, also beside what a run says meanwhile
			say("Thanks!")                             // with the change of the state that the page remembers
			once("after the new name", append(all, "You are welcome.")...)
			p.Reload()
			once("after a reload", append(all, "You are welcome.")...)
			p.Until(`document.querySelector(".toolbar-session-group").innerText.includes("Refund of Ann")`)
			for sum, err := range s.Runtime.List(t.Context(), perdure.ListOptions{}) {
				if err != nil || sum.Title != "Refund of Ann" {
					t.Errorf("the thread is called %q, %v", sum.Title, err)
				}
			}
		})
	}
}

// Google's own client reads every event, and why something fails.
func TestClientOfADK(t *testing.T) {
	s, _ := googleSite(t)
	modules := clientModules(t)
	dir := t.TempDir()
	servertest.Check(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	err := os.WriteFile(filepath.Join(dir, "client.mjs"), []byte(`
import { AdkApiClient } from "./node_modules/@google/adk-devtools/dist/esm/server/adk_api_client.js";
const client = new AdkApiClient({ backendUrl: process.argv[2] });
const at = { appName: "clerk", userId: "ann", sessionId: "s1" };
const said = [];
const run = async (newMessage, streaming) => {
  let waits;
  for await (const e of client.runAsync({ ...at, newMessage, streaming })) {
    for (const part of e.content?.parts ?? []) {
      if (e.partial) continue;
      if (part.functionCall) said.push("call " + part.functionCall.name);
      else if (part.functionResponse) said.push("response " + JSON.stringify(part.functionResponse.response));
      else if (!part.thought) said.push(part.text);
      if (e.longRunningToolIds?.includes(part.functionCall?.id)) waits = part.functionCall;
    }
  }
  return waits;
};
const respond = (to, response) => ({ role: "user", parts: [{ functionResponse: { id: to.id, name: to.name, response } }] });
await client.createSession(at);
let waits = await run("Refund A-1 please", false);
waits = await run(respond(waits, { confirmed: true, payload: waits.args.originalFunctionCall.args }), false);
await run(respond(waits, { result: "arrived" }), true);
const session = await client.getSession(at);
const names = (await client.listSessions(at)).map((s) => s.id);
let why;
try { for await (const e of client.runAsync({ ...at, sessionId: "none", newMessage: "x" })); } catch (e) { why = e.message; }
await client.deleteSession(at);
console.log(JSON.stringify({ said, apps: await client.listApps(), events: session.events.length, names, why }));
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	// The condition picks the build that needs no package for Google's logins.
	node := exec.CommandContext(t.Context(), "node", "--conditions=browser", "client.mjs", s.URL)
	node.Dir = dir
	node.Stderr = os.Stderr
	out := servertest.Must(node.Output())(t)
	var got struct {
		Said   []string
		Apps   []string
		Events int
		Names  []string
		Why    string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := []string{"I look at it.", "call refund", "call adk_request_confirmation",
		`response {"result":"refunded A-1 with 7"}`, "I ship another one.", "call ship", "call adk_request_input",
		`response {"result":"arrived"}`, "It is done, thank you."}
	if fmt.Sprint(got.Said) != fmt.Sprint(want) {
		t.Errorf("it reads %q\nwant %q", got.Said, want)
	}
	if fmt.Sprint(got.Apps, got.Names) != "[clerk] [s1]" || got.Events != 11 || !strings.Contains(got.Why, `"none"`) {
		t.Errorf("the apps are %v, the sessions %v, one has %d events, and a missing one is told as %q", got.Apps, got.Names, got.Events, got.Why)
	}
}
