package adk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestTurnsOfAMovedThread migrates the store in the middle of two turns, and while a
// third waits for an answer. They end, as do later requests, with the error that says
// where the thread continues.
func TestTurnsOfAMovedThread(t *testing.T) {
	const where = "continues in there"
	from := memstore.New()
	inside := make(chan struct{}, 2)
	slow := agent.NewTool("slow", "Takes for ever.", func(ctx context.Context, _ order) (string, error) {
		inside <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	call := script.Reply{Calls: []llm.Call{{Name: "slow", Args: `{"id":"1"}`}}}
	s := newSiteOn(t, from, server.Options{}, clerk(new(kit.Tally)),
		agent.NewFlow("slow", agent.New("slow", script.New(call, call), agent.Options{Tools: []agent.Tool{slow}})))
	body := func(app, session string) string {
		return `{"appName":"` + app + `","userId":"u","sessionId":"` + session + `","newMessage":{"role":"user","parts":[{"text":"go"}]}}`
	}
	s.session("clerk", "u", "s")
	asked := s.run(body("clerk", "s"))
	s.session("slow", "u", "list")
	s.session("slow", "u", "stream")
	replies := make(chan *servertest.Reply, 1)
	go func() { replies <- s.Do("POST", "/run", body("slow", "list")) }()
	streams := make(chan *servertest.Reply, 1)
	go func() { streams <- s.Do("POST", "/run_sse", body("slow", "stream"), "Accept", "text/event-stream") }()
	<-inside
	<-inside
	if _, err := migrate.Run(t.Context(), from, memstore.New(), migrate.Options{To: "there", Grace: 1}); err != nil {
		t.Fatal(err)
	}
	(<-replies).Problem(409, "moved")
	if got := string((<-streams).Want(200).Body); !strings.Contains(got, where) {
		t.Errorf("the stream says\n%s\nwant that the thread %s", got, where)
	}
	for _, path := range []string{"/run", "/run_sse"} {
		s.Do("POST", path, body("clerk", "s")).Problem(409, "moved")
	}
	// A client that asks for the rest of a turn changes nothing.
	turn := `{"appName":"clerk","userId":"u","sessionId":"s","invocationId":"` + asked[0].InvocationID + `"}`
	s.Do("POST", "/run", turn).Problem(409, "moved")
}
