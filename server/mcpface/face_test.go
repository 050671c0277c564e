package mcpface_test

import (
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// A client starts a flow, follows it, answers what it asks, and looks at all of it.
func TestClientOperatesRuns(t *testing.T) {
	s := newSite(t, false, asker, buy)
	a := s.connect("")
	var h struct {
		Thread, Run, Status, Follow string
		Seq                         uint64
	}
	a.call("flow_asker", args{"input": "may I?", "idempotency_key": "k1"}, &h)
	first := h
	a.call("flow_asker", args{"input": "may I?", "idempotency_key": "k1"}, &h)
	if h.Thread != first.Thread || h.Run != first.Run || h.Run == "" {
		t.Fatalf("the same key gave %v and %v", first, h)
	}
	var f struct {
		Events []perdure.Event
		Next   string
		Over   bool
		Done   *api.Done
	}
	for !f.Over {
		a.call("events_follow", args{"thread": h.Thread, "run": h.Run, "after": f.Next}, &f)
	}
	if f.Done == nil || len(f.Done.Asks) != 1 {
		t.Fatalf("%+v", f)
	}
	ask := f.Done.Asks[0].ID
	var asks of[api.AskPage]
	a.call("asks_list", args{"thread": h.Thread}, &asks)
	if len(asks.Result.Asks) != 1 || asks.Result.Asks[0].ID != ask || asks.Source != "threads" {
		t.Fatalf("%+v", asks)
	}
	a.call("asks_answer", args{"ask": ask, "value": "yes"}, nil)
	var waited of[api.Waited]
	for !waited.Result.Over {
		a.call("runs_wait", args{"thread": h.Thread}, &waited)
	}
	if string(waited.Result.Run.Output) != `"yes"` {
		t.Errorf("the output is %s", waited.Result.Run.Output)
	}
	var fork of[perdure.Fork]
	a.call("threads_fork", args{"thread": h.Thread, "at": h.Seq}, &fork)
	var family of[perdure.Family]
	a.call("family_get", args{"thread": h.Thread}, &family)
	if fork.Result.Thread == "" || fork.Result.From != h.Thread {
		t.Errorf("%+v", fork)
	}
	a.call("runs_cancel", args{"thread": fork.Result.Thread, "reason": "enough"}, nil)
}
