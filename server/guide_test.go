//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
)

// TestChatOfTheGuide opens the page of docs/guide/03-chat.md, types, approves
// after a reload, and reads the reply.
func TestChatOfTheGuide(t *testing.T) {
	guide := servertest.Must(os.ReadFile("../docs/guide/03-chat.md"))(t)
	_, page, _ := strings.Cut(string(guide), "```html\n")
	page, _, ok := strings.Cut(page, "```")
	if !ok {
		t.Fatal("the guide has no page")
	}
	type order struct {
		ID string `json:"id"`
	}
	refund := agent.NewTool("refund", "Refund an order.", func(_ context.Context, o order) (string, error) {
		return "refunded " + o.ID, nil
	}, agent.NeedsApproval())
	model := script.New(script.Call("refund", `{"id":"A-17"}`), script.Reply{Text: "It is refunded.", Chunks: 4})
	s := servertest.New(t, server.Options{}, agent.NewFlow("clerk", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{refund}})))
	mux := http.NewServeMux()
	mux.Handle("/v1/", s.Server)
	for path, content := range map[string][2]string{"/{$}": {"text/html", page}, "/follow.js": {"text/javascript", string(proofFollow)}} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", content[0])
			io.WriteString(w, content[1])
		})
	}
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)

	p := openBrowser(t, site.URL)
	p.Until(`document.getElementById("say")?.onsubmit`)
	p.Eval(`document.querySelector("input").value = "Refund A-17"; document.querySelector("form").requestSubmit()`, nil)
	p.Until(`document.querySelector("#asks button")`)
	p.Reload()
	p.Until(`document.querySelector("#asks button")?.textContent === "approve" && document.getElementById("asks").textContent.includes("A-17") && document.getElementById("log").textContent.includes("user: Refund A-17")`)
	p.Eval(`document.querySelector("#asks button").click()`, nil)
	p.Until(`document.getElementById("log").textContent.includes("assistant: It is refunded.") && !document.querySelector("#asks button") && !document.getElementById("live").textContent`)
}
