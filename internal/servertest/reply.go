package servertest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
)

// FuzzReply makes answers of anything that a face may be sent: no secret becomes
// part of one, and none has a decision that the ask does not offer.
func FuzzReply(f *testing.F, names []string, answer func(ask *perdure.AskInfo, name string, raw json.RawMessage) (reply api.Reply, secret string, err error)) {
	for _, raw := range []string{`"approve"`, `true`, `{"decision":"provided"}`, `{"decision":"reject","message":5,"value":null}`, `{"confirmed":true,"payload":{}}`,
		`{"response":"{\"confirmed\":false}"}`, `{"secret":"s"}`, `null`, ``, `{"authConfig":{"oauth2":{"accessToken":"s"}}}`, `{"result":1}`} {
		for kind := range uint8(4) {
			for _, name := range names {
				f.Add(raw, kind, name)
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw string, kind uint8, name string) {
		ask := []*perdure.AskInfo{
			{Kind: agent.KindCredential, Decisions: []string{agent.DecisionProvided, agent.DecisionReject}},
			{Kind: agent.KindApproval, Decisions: []string{agent.DecisionApprove, agent.DecisionReject, agent.DecisionEdit}},
			{Kind: agent.KindPending, Data: json.RawMessage(`{"tool":"x"}`)},
			{Want: "boolean"},
		}[kind%4]
		if !json.Valid([]byte(raw)) {
			t.Skip("the body it is in is no JSON")
		}
		reply, secret, err := answer(ask, name, json.RawMessage(raw))
		switch {
		case err != nil:
		case secret != "" && (ask.Kind != agent.KindCredential || reply.Decision != "" || reply.Value != nil || reply.Message != ""):
			t.Errorf("%s gives a secret and %+v", raw, reply)
		case ask.Kind == agent.KindCredential && secret == "" && reply.Decision != agent.DecisionReject:
			t.Errorf("%s answers an ask for a secret with %+v", raw, reply)
		case reply.Decision != "" && !slices.Contains(ask.Decisions, reply.Decision):
			t.Errorf("%s decides %q", raw, reply.Decision)
		case reply.Value != nil && !json.Valid(reply.Value):
			t.Errorf("%s has the value %q", raw, reply.Value)
		}
	})
}
