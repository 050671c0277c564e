package adk

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

// What a client sees of each event, byte for byte.
func TestEventsAreAProjection(t *testing.T) {
	at := time.Date(2026, 11, 15, 12, 0, 0, 500_000_000, time.UTC)
	const head = `{"id":"t-7","invocationId":"r","author":`
	const tail = `"actions":{"stateDelta":{},"artifactDelta":{}}}`
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for name, test := range map[string]struct {
		event perdure.Event
		want  string
	}{
		"an input": {perdure.Event{Kind: "queued", Value: raw(`"hello"`)},
			head + `"user","timestamp":1794744000.5,"content":{"role":"user","parts":[{"text":"hello"}]},` + tail},
		"an input with media": {perdure.Event{Kind: "queued", Value: raw(`[{"text":"a"},{"media":{"mime":"image/png","data":"aGk="}},{"media":{"url":"https://x/y"}}]`)},
			head + `"user","timestamp":1794744000.5,"content":{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"fileData":{"fileUri":"https://x/y"}}]},` + tail},
		"an input of another kind": {perdure.Event{Kind: "queued", Value: raw(`{"a":1}`)},
			head + `"user","timestamp":1794744000.5,"content":{"role":"user","parts":[{"text":"{\"a\":1}"}]},` + tail},
		"a reply": {perdure.Event{Kind: "step", Path: "/a/turn-1/reply", Value: raw(`{"id":"r/a/turn-1/reply","agent":"a","message":{"role":"assistant","parts":[{"reasoning":{"text":"hm"}},{"text":"well"},{"call":{"id":"c","name":"f","args":""}}]},"usage":{"input":3,"output":4,"cache_read":1,"reasoning":2},"stop":"calls","model":"m"}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"model","parts":[{"text":"hm","thought":true},{"text":"well"},{"functionCall":{"id":"c","name":"f","args":{}}}]},` +
				`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":7,"cachedContentTokenCount":1,"thoughtsTokenCount":2},"finishReason":"STOP","modelVersion":"m",` + tail},
		"a reply that was cut off": {perdure.Event{Kind: "step", Path: "/a/turn-1/reply", Value: raw(`{"id":"r/a/turn-1/reply","agent":"a","message":{"role":"assistant","parts":[{"text":"w"}]},"stop":"length"}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"model","parts":[{"text":"w"}]},"finishReason":"MAX_TOKENS",` + tail},
		"a result": {perdure.Event{Kind: "step", Path: "/a/turn-1/0-f/run", Value: raw(`{"id":"r/a/turn-1/0-f/run","agent":"a","escalate":true,"transfer":"b","message":{"role":"tool","parts":[{"result":{"call":"c","name":"f","text":"{\"n\":1}"}}]}}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"n":1}}}]},` +
				`"actions":{"stateDelta":{},"artifactDelta":{},"transferToAgent":"b","escalate":true}}`},
		"what an agent is given":         {perdure.Event{Kind: "step", Path: "/a/input", Value: raw(`{"id":"r/a/input","agent":"a","message":{"role":"user","parts":[{"text":"x"}]}}`)}, `null`},
		"a step in the form of a record": {perdure.Event{Kind: "step", Path: "/mine", Value: raw(`{"id":"r/a/turn-1/reply","agent":"a","message":{"role":"assistant","parts":[{"text":"x"}]}}`)}, `null`},
		"a step":                         {perdure.Event{Kind: "step", Path: "/mine", Value: raw(`[1]`)}, `null`},
		"a failed step":                  {perdure.Event{Kind: "step", Path: "/mine", Error: "no"}, `null`},
		"a claim":                        {perdure.Event{Kind: "claimed", Worker: "w"}, `null`},
		"a later kind":                   {perdure.Event{Kind: "new"}, `null`},
		"an approval": {perdure.Event{Kind: "asked", Ask: "k", AskKind: "approval", Decisions: []string{"approve"}, Name: "may it?", Path: "/a/approve-1", Value: raw(`{"agent":"a","tool":"f","call":"c","args":{"x":1}}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"adk_request_confirmation","args":` +
				`{"originalFunctionCall":{"id":"c","name":"f","args":{"x":1}},"toolConfirmation":{"hint":"may it?","confirmed":false}}}}]},"longRunningToolIds":["k"],` +
				`"actions":{"stateDelta":{},"artifactDelta":{},"requestedToolConfirmations":{"c":{"hint":"may it?","confirmed":false}}}}`},
		"a flow's own approval": {perdure.Event{Kind: "asked", Ask: "k", Decisions: []string{"approve"}, Name: "push?", Path: "/x/approve-pr", Value: raw(`42`)},
			head + `"app","timestamp":1794744000.5,"content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"adk_request_confirmation","args":` +
				`{"originalFunctionCall":{"id":"k","name":"approve-pr","args":{}},"toolConfirmation":{"hint":"push?","confirmed":false}}}}]},"longRunningToolIds":["k"],` +
				`"actions":{"stateDelta":{},"artifactDelta":{},"requestedToolConfirmations":{"k":{"hint":"push?","confirmed":false}}}}`},
		"a question": {perdure.Event{Kind: "asked", Ask: "k", AskKind: "question", Name: "which?", Path: "/a/person"},
			head + `"app","timestamp":1794744000.5,"content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"adk_request_input","args":{"interruptId":"k","message":"which?"}}}]},"longRunningToolIds":["k"],` + tail},
		"a credential": {perdure.Event{Kind: "asked", Ask: "k", AskKind: "credential", Decisions: []string{"provided", "reject"}, Name: "log in", Value: raw(`{"agent":"a","credential":"login"}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"adk_request_credential","args":{"authConfig":{"credentialKey":"login"},"functionCallId":"k","message":"log in"}}}]},"longRunningToolIds":["k"],` + tail},
		"a pending call": {perdure.Event{Kind: "asked", Ask: "k", AskKind: "pending", Value: raw(`{"agent":"a","tool":"mail","call":"c","args":{"to":"x"},"ref":"j"}`)},
			head + `"a","timestamp":1794744000.5,"content":{"role":"model","parts":[{"functionCall":{"id":"k","name":"adk_request_input","args":{"interruptId":"k","message":"","payload":{"agent":"a","tool":"mail","call":"c","args":{"to":"x"},"ref":"j"}}}}]},"longRunningToolIds":["k"],` + tail},
		"blocked": {perdure.Event{Kind: "blocked", Diff: "- a"},
			head + `"app","timestamp":1794744000.5,"errorCode":"BLOCKED","errorMessage":"- a",` + tail},
		"branch failed": {perdure.Event{Kind: "suspended", Error: "branch /pay failed: declined"},
			head + `"app","timestamp":1794744000.5,"errorCode":"BRANCH_FAILED","errorMessage":"branch /pay failed: declined",` + tail},
		"failed": {perdure.Event{Kind: "ended", Status: perdure.Failed, Error: "no luck"},
			head + `"app","timestamp":1794744000.5,"turnComplete":true,"errorCode":"FAILED","errorMessage":"no luck","actions":{"stateDelta":{},"artifactDelta":{},"endOfAgent":true}}`},
		"cancelled": {perdure.Event{Kind: "ended", Status: perdure.Cancelled},
			head + `"app","timestamp":1794744000.5,"turnComplete":true,"errorCode":"CANCELLED","errorMessage":"the run was cancelled","actions":{"stateDelta":{},"artifactDelta":{},"endOfAgent":true}}`},
		"succeeded": {perdure.Event{Kind: "ended", Status: perdure.Succeeded, Value: raw(`{"n":1}`)},
			head + `"app","timestamp":1794744000.5,"content":{"role":"model","parts":[{"text":"{\"n\":1}"}]},"turnComplete":true,"actions":{"stateDelta":{},"artifactDelta":{},"endOfAgent":true}}`},
		"succeeded with nothing": {perdure.Event{Kind: "ended", Status: perdure.Succeeded},
			head + `"app","timestamp":1794744000.5,"turnComplete":true,"actions":{"stateDelta":{},"artifactDelta":{},"endOfAgent":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := test.event
			e.Thread, e.Seq, e.Run, e.Time = "t", 7, "r", at
			got, err := json.Marshal(newView("app").event(e))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// An output that an agent has said is not said again by the end; the answer of an
// ask has the name of the call that it answers.
func TestEventsKnowWhatWasBefore(t *testing.T) {
	v := newView("app")
	v.event(perdure.Event{Kind: "step", Run: "r", Path: "/a/turn-1/reply", Value: json.RawMessage(`{"id":"r/a/turn-1/reply","agent":"a","message":{"role":"assistant","parts":[{"text":"{ \"n\": 1 }"}]}}`)})
	v.event(perdure.Event{Kind: "asked", Run: "r", Ask: "k", AskKind: "approval", Decisions: []string{"approve"}})
	answered, _ := json.Marshal(v.event(perdure.Event{Kind: "answered", Run: "r", Ask: "k", Decision: "reject", Reason: "no"}).Content)
	if got := string(answered); got != `{"role":"user","parts":[{"functionResponse":{"id":"k","name":"adk_request_confirmation","response":{"confirmed":false,"decision":"reject","message":"no"}}}]}` {
		t.Errorf("the answer is %s", got)
	}
	end := perdure.Event{Kind: "ended", Run: "r", Status: perdure.Succeeded, Value: json.RawMessage(`{"n":1}`)}
	if got := v.event(end); got.Content != nil {
		t.Errorf("it is said again: %+v", got.Content)
	}
	if got := v.event(end); got.Content == nil {
		t.Error("another run is taken for this one")
	}
}

// A number that a client's JSON has rounded is neither approved nor an edit.
func TestRoundedPayloadIsRefused(t *testing.T) {
	ask := &perdure.AskInfo{Kind: agent.KindApproval, Decisions: []string{"approve", "edit", "reject"}, Data: json.RawMessage(`{"tool":"pay","args":{"to":9007199254740993}}`)}
	for payload, want := range map[string]string{"9007199254740993": "approve", "9007199254740992": "", "9007199254740994": "edit"} {
		reply, _, err := replyTo(ask, received{name: callConfirm, response: json.RawMessage(`{"confirmed":true,"payload":{"to":` + payload + `}}`)})
		if want == "" && errors.Is(err, perdure.ErrAnswer) {
			continue
		}
		if err != nil || reply.Decision != want {
			t.Errorf("%s is %q, %v; want %q", payload, reply.Decision, err, want)
		}
	}
}

// TestPiecesNameTheirAgent: after a handover too, whose step has a number.
func TestPiecesNameTheirAgent(t *testing.T) {
	piece := perdure.DeltaEvent{Run: "r", Path: "/desk/handover-1-sub/turn-1/reply", Data: json.RawMessage(`{"part":0,"text":"hi","agent":"sub"}`)}
	if got := showPiece("t", piece, time.Unix(0, 0)); got == nil || got.Author != "sub" {
		t.Errorf("the piece is %+v", got)
	}
}

// A text in a response that is JSON itself is no way around the limits on JSON.
func TestTextsInResponsesAreNoWayAroundLimits(t *testing.T) {
	ask := &perdure.AskInfo{Kind: agent.KindCredential, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}}
	nest := func(n int) string {
		return strings.Repeat(`{"authConfig":`, n) + `{"secret":"s"}` + strings.Repeat("}", n)
	}
	for n, want := range map[int]string{1: "s", 4: "s", 5: "", 60: "", 5000: ""} {
		raw, _ := json.Marshal(map[string]string{"response": nest(n)})
		if _, secret, err := replyTo(ask, received{response: raw}); secret != want || (err == nil) != (want != "") {
			t.Errorf("at depth %d there is %q, %v", n, secret, err)
		}
	}
	raw, _ := json.Marshal(map[string]string{"response": `{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}"})
	if _, _, err := replyTo(&perdure.AskInfo{Kind: agent.KindPending, Data: json.RawMessage(`{"tool":"x"}`)}, received{response: raw}); !errors.Is(err, api.ErrBody) {
		t.Errorf("a deep result is taken: %v", err)
	}
}

func FuzzReply(f *testing.F) {
	servertest.FuzzReply(f, []string{"", callConfirm, callInput}, func(ask *perdure.AskInfo, name string, raw json.RawMessage) (api.Reply, string, error) {
		return replyTo(ask, received{id: "x", name: name, response: raw})
	})
}
