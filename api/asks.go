package api

import (
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
)

// ListAsks selects open asks.
type ListAsks struct {
	Thread string `query:"thread" json:"-" jsonschema:"only asks of this thread"`
	User   string `query:"user" json:"-" jsonschema:"only asks of threads of this owner"`
	Flow   string `query:"flow" json:"-" jsonschema:"only those of this flow"`
	Kind   string `query:"kind" json:"-" jsonschema:"only asks of this kind, such as approval"`
	Mine   bool   `query:"mine" json:"-" jsonschema:"only asks that the token may answer"`
	Order  string `query:"order" json:"-" jsonschema:"opened (the default): oldest first; expires: soonest to expire first. Exact to the minute"`
	After  string `query:"after" json:"-" jsonschema:"cursor: next of the previous page"`
	Limit  int    `query:"limit" json:"-" jsonschema:"about how many to return, up to 1000; 100 by default. All asks of a thread are on one page"`
}

// AskPage is a page of open asks.
type AskPage struct {
	Asks   []perdure.AskInfo `json:"asks" jsonschema:"the asks, by thread, in the order of the first open ask of each"`
	Next   string            `json:"next,omitempty" jsonschema:"cursor of the next page; absent on the last"`
	Damage []string          `json:"damage,omitempty" jsonschema:"what is damaged and may therefore be missing from the page"`
}

// OneAsk names an ask.
type OneAsk struct {
	Ask string `path:"ask" json:"-" jsonschema:"id of the ask"`
}

// Reply is a person's answer to an ask.
type Reply struct {
	Decision string          `json:"decision,omitempty" jsonschema:"one of the ask's decisions"`
	Value    json.RawMessage `json:"value,omitempty" jsonschema:"the value, which must fit the ask's schema"`
	Message  string          `json:"message,omitempty" jsonschema:"a remark; for a rejection, what the model is told"`
	Attach   []string        `json:"attach,omitempty" jsonschema:"ids of uploads that the value refers to"`
}

// AnswerAsk answers an ask.
type AnswerAsk struct {
	OneAsk
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Reply
}

// AskReply is an answer among several.
type AskReply struct {
	Ask string `json:"ask" jsonschema:"id of the ask"`
	Reply
}

// AnswerAsks answers several asks of a thread, all or none.
type AnswerAsks struct {
	Thread  string     `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch uint64     `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Answers []AskReply `json:"answers" jsonschema:"the answers"`
}

// AskList holds asks in their current state.
type AskList struct {
	Asks []perdure.AskInfo `json:"asks" jsonschema:"the asks"`
}

// TellProgress reports progress on an open ask.
type TellProgress struct {
	OneAsk
	IfMatch uint64          `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Value   json.RawMessage `json:"value" jsonschema:"the progress: any JSON"`
	Reason  string          `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// ProvideSecret provides the secret that an ask of kind credential waits for.
type ProvideSecret struct {
	OneAsk
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Secret  string `json:"secret" jsonschema:"the secret; it is sealed and appears in no journal, event or response"`
}

// SendSignal sends a named event to a thread.
type SendSignal struct {
	Thread  string          `path:"thread" json:"-" jsonschema:"id of the thread"`
	Name    string          `path:"name" json:"-" jsonschema:"name of the signal"`
	Key     string          `header:"Idempotency-Key" json:"-" jsonschema:"signals with the same key are delivered once; with another name or value they are refused"`
	IfMatch uint64          `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Value   json.RawMessage `json:"value,omitempty" jsonschema:"what the flow receives"`
	Attach  []string        `json:"attach,omitempty" jsonschema:"ids of uploads that the value refers to"`
}

// ListRules selects rules.
type ListRules struct {
	User string `query:"user" json:"-" jsonschema:"the user whose threads they apply to"`
}

// RuleList holds the rules of a user.
type RuleList struct {
	Rules  []agent.Rule `json:"rules" jsonschema:"the rules"`
	Damage []string     `json:"damage,omitempty" jsonschema:"what is damaged and may therefore be missing from the page"`
}

// OneRule names a rule.
type OneRule struct {
	ID string `path:"rule" json:"-" jsonschema:"id of the rule"`
}

// Operations for people in the loop.
var (
	AsksList = define[ListAsks, AskPage]("asks.list", "GET /v1/asks", ScopeRead,
		"list the open asks of all threads")
	AsksGet = define[OneAsk, perdure.AskInfo]("asks.get", "GET /v1/asks/{ask}", ScopeRead,
		"get an ask, open or closed")
	AsksAnswer = define[AnswerAsk, perdure.AskInfo]("asks.answer", "POST /v1/asks/{ask}/answer", ScopeAnswer,
		"answer an ask", doc("The first answer wins; repeating it changes nothing."))
	AsksAnswerAll = define[AnswerAsks, AskList]("asks.answer-all", "POST /v1/threads/{thread}/answers", ScopeAnswer,
		"answer several asks of a thread, all or nothing")
	AsksProgress = define[TellProgress, None]("asks.progress", "POST /v1/asks/{ask}/progress", ScopeAnswer,
		"report progress on an open ask")
	AsksSecret = define[ProvideSecret, None]("asks.secret", "POST /v1/asks/{ask}/secret", ScopeAnswer,
		"provide the secret that an ask of kind credential waits for")
	SignalsSend = define[SendSignal, None]("signals.send", "POST /v1/threads/{thread}/signals/{name}", ScopeRun,
		"send a named event to a thread")
	RulesList = define[ListRules, RuleList]("rules.list", "GET /v1/rules", ScopeRead,
		"list the rules by which calls run without asking")
	RulesRevoke = define[OneRule, None]("rules.revoke", "DELETE /v1/rules/{rule}", ScopeAnswer,
		"revoke a rule")
)
