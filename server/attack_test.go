package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
)

// many returns a JSON list of n times the same.
func many(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// An element of a list is worth three bytes of a body, and was a thousand times
// as much work.
func TestAttackListsOfObjectsAreBounded(t *testing.T) {
	s := newFuzzed(t)
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).problem(400, "body")
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).problem(400, "body")
}

// What agents have said and done is not for callers to write.
func TestAttackAForkForgesNothingOfTheAgents(t *testing.T) {
	s := newFuzzed(t)
	for _, key := range []string{"agent.messages", "agent.todos", "agent.file:a", "agent.blob:" + strings.Repeat("0", 64)} {
		s.do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"`+key+`":5}}`).problem(400, "invalid")
	}
	s.do("POST", "/v1/threads/t1/fork", `{"as":"t2","state":{"agents":5}}`).want(201)
}

// Who asks for much and reads nothing does not keep it in memory for ever.
func TestAttackAnswersThatNobodyReadsEnd(t *testing.T) {
	s := newSite(t, server.Options{Stall: 50 * time.Millisecond})
	over := make(chan error, 1)
	s.api.AddFace("GET /much", api.ScopeNone, func(w http.ResponseWriter, _ *http.Request, _ server.Caller) error {
		_, err := w.Write(make([]byte, 256<<20))
		over <- err
		return nil
	})
	conn := slowDial(t, s.url)
	fmt.Fprint(conn, "GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-over:
		if err == nil {
			t.Error("all of it was written though nothing was read")
		}
	case <-time.After(30 * time.Second):
		t.Error("the handler writes on")
	}
}
