package api

import (
	"encoding/json"
	"slices"
)

// EventKind describes a kind of event, for docs/events.md.
type EventKind struct {
	Name     string
	Title    string   // what happened
	Fields   []string // members that its data may have besides the common ones
	Internal bool     // about how workers process runs: its own members are shown only to admins
}

// CommonFields are the members that events of every kind may have.
var CommonFields = []string{"thread", "seq", "life", "kind", "time", "run", "path"}

// EventKinds are the kinds of events in the journal of a thread. Later versions
// may add some.
var EventKinds = []EventKind{
	{"created", "the thread was created", []string{"by"}, false},
	{"metadata", "its title or metadata changed", []string{"by", "reason"}, false},
	{"signal", "a named event arrived from outside, or a child ended", []string{"name", "child", "value", "status", "error", "by"}, false},
	{"forked", "the thread was forked from the thread `from` after its sequence `at`, or was imported; value is an edited input; answers that have had no effect yet are void, except those in keep", []string{"from", "at", "import", "signer", "keep", "value", "by", "reason"}, false},
	{"rewound", "the thread was taken back to the sequence `to`", []string{"to", "by", "reason"}, false},
	{"moved", "the thread continues in the store `name`; here it can only be read", []string{"name"}, false},
	{"nudge", "nothing changed; workers use it to mark a point", nil, true},

	{"queued", "a run was requested: value is the input, name the flow", []string{"name", "value", "by"}, false},
	{"claimed", "a worker took the run", []string{"worker"}, true},
	{"suspended", "the run waits; error names branches that have failed in the meantime", []string{"error"}, false},
	{"released", "the worker released the run", nil, true},
	{"blocked", "the code does not match the record: diff shows where", []string{"diff"}, false},
	{"quarantined", "the run killed too many workers: value says how many deaths in a row it was", []string{"error", "value"}, false},
	{"ended", "the run has ended: status says how, value is the output", []string{"status", "value", "value_of", "error"}, false},

	{"step", "a step is finished: value is its result, or error says why it failed", []string{"value", "value_of", "error", "took_us"}, false},
	{"attempt", "an attempt at a step failed; the next one starts when due", []string{"attempt", "attempts", "error", "due", "took_us"}, false},
	{"closed", "a branch of a group that fails fast has failed, and its siblings are closed, with their asks", []string{"error"}, false},
	{"intent", "a step that must not run twice is about to start", []string{"due"}, true},

	{"asked", "a person was asked: name is the prompt, value the subject", []string{"ask", "name", "ask_kind", "decisions", "value", "due"}, false},
	{"answered", "an ask was answered", []string{"ask", "decision", "value", "by", "reason"}, false},
	{"expired", "an ask expired", []string{"ask", "decision", "value", "by", "reason"}, false},
	{"progress", "progress on an open ask was reported", []string{"ask", "value", "by", "reason"}, false},
	{"timer", "a sleep began", []string{"due"}, false},
	{"waiting", "the run waits for a signal or a child", []string{"name", "child", "due"}, false},
	{"received", "a pending signal was received", []string{"name", "child", "value", "status", "error"}, false},
	{"fired", "a timer or deadline has passed", []string{"name", "error"}, false},
	{"took", "a queued input was taken, or there was none", []string{"name", "value"}, false},
	{"emitted", "an event of the flow's own", []string{"value"}, false},
	{"planned", "the names of the steps that will come", []string{"plan"}, false},
	{"spawned", "a child is about to be started", []string{"name", "child", "value"}, false},

	{"cancel", "the run is to be cancelled", []string{"name", "by", "reason"}, false},
	{"paused", "the run was paused", []string{"by", "reason"}, false},
	{"resumed", "the pause was lifted", []string{"by", "reason"}, false},
	{"retried", "the run continues after its failure", []string{"by", "reason"}, false},

	{"dumped", "dependencies were saved inside a step", nil, true},
	{"problem", "something went wrong that does not stop the run", []string{"name", "error"}, true},
}

// Internal reports whether events of a kind show their own members only to admins. It
// is true for kinds that this version does not know.
func Internal(kind string) bool {
	i := slices.IndexFunc(EventKinds, func(k EventKind) bool { return k.Name == kind })
	return i < 0 || EventKinds[i].Internal
}

// memberSchemas are the JSON Schemas of the members of an event.
var memberSchemas = map[string]json.RawMessage{
	"thread":    json.RawMessage(`{"type":"string","description":"id of the thread"}`),
	"seq":       json.RawMessage(`{"type":"integer","minimum":1,"description":"its position in the thread, and its id"}`),
	"life":      json.RawMessage(`{"type":"string","description":"set if the thread reuses the id of an erased one: its event ids are SEQ-LIFE"}`),
	"time":      json.RawMessage(`{"type":"string","format":"date-time","description":"when it was recorded"}`),
	"run":       json.RawMessage(`{"type":"string","description":"id of the run"}`),
	"path":      json.RawMessage(`{"type":"string","description":"of the step or other verb in the run"}`),
	"name":      json.RawMessage(`{"type":"string","description":"of a flow, signal or dependency; of an ask its prompt"}`),
	"attempt":   json.RawMessage(`{"type":"integer","description":"which attempt failed"}`),
	"attempts":  json.RawMessage(`{"type":"integer","description":"the largest number of attempts"}`),
	"took_us":   json.RawMessage(`{"type":"integer","description":"how long this attempt ran, in microseconds"}`),
	"value":     json.RawMessage(`{"description":"input, result, payload, answer or output: any JSON"}`),
	"from":      json.RawMessage(`{"type":"string","description":"the thread that a fork comes from"}`),
	"at":        json.RawMessage(`{"type":"integer","description":"the last sequence that it shares with the fork"}`),
	"import":    json.RawMessage(`{"type":"boolean","description":"everything before this event came from a file"}`),
	"signer":    json.RawMessage(`{"type":"string","description":"the trusted key that signed the file"}`),
	"keep":      json.RawMessage(`{"type":"array","items":{"type":"string"},"description":"ids of asks whose answers count in the fork"}`),
	"to":        json.RawMessage(`{"type":"integer","description":"the sequence that a rewind went back to"}`),
	"value_of":  json.RawMessage(`{"type":"integer","description":"seq of the event that holds the value"}`),
	"error":     json.RawMessage(`{"type":"string","description":"what went wrong"}`),
	"ask":       json.RawMessage(`{"type":"string","description":"id of the ask"}`),
	"ask_kind":  json.RawMessage(`{"type":"string","description":"kind of the ask, such as approval"}`),
	"decisions": json.RawMessage(`{"type":"array","items":{"type":"string"},"description":"decisions that the ask allows"}`),
	"child":     json.RawMessage(`{"type":"string","description":"id of the child's thread"}`),
	"decision":  json.RawMessage(`{"type":"string","description":"what was decided"}`),
	"by":        json.RawMessage(`{"type":"string","description":"who did it"}`),
	"reason":    json.RawMessage(`{"type":"string","description":"why"}`),
	"status":    json.RawMessage(`{"type":"string","description":"of the run"}`),
	"due":       json.RawMessage(`{"type":"string","format":"date-time","description":"when it is due"}`),
	"plan":      json.RawMessage(`{"type":"array","items":{"type":"string"},"description":"names of steps"}`),
	"diff":      json.RawMessage(`{"type":"string","description":"how the code differs from the record"}`),
	"worker":    json.RawMessage(`{"type":"string","description":"id of the worker"}`),
}

// deltaSchemas are the schemas of live data: deltas, and the data of deltas that
// carry the reply of an agent's model.
var deltaSchemas = map[string]json.RawMessage{
	"delta": json.RawMessage(`{"type":"object","description":"what a step says while it runs; it has no id","properties":{
		"run":{"type":"string","description":"id of the run"},
		"path":{"type":"string","description":"of the step"},
		"pass":{"type":"integer","minimum":0,"description":"grows each time a worker takes up the thread; equal attempts of different passes are different attempts"},
		"attempt":{"type":"integer","minimum":1,"description":"which attempt of the step says it"},
		"offset":{"type":"integer","minimum":0,"description":"its place among the deltas of the attempt in the pass"},
		"data":{"description":"what the step gave to Delta: any JSON. At a path that ends in /reply or /reply-again it is a piece"}},
		"required":["run","path","pass","attempt","offset","data"]}`),
	"piece": json.RawMessage(`{"type":"object","description":"data of a delta: a piece of a model's reply","properties":{
		"agent":{"type":"string","description":"whose reply it is"},
		"part":{"type":"integer","minimum":0,"description":"index of the part of the reply that it adds to"},
		"text":{"type":"string","description":"more text of the part"},
		"reasoning":{"type":"string","description":"more reasoning of the part"},
		"call":{"type":"object","description":"a call of a tool: id and name come once, args in pieces","properties":{"id":{"type":"string"},"name":{"type":"string"},"args":{"type":"string"}}},
		"media":{"type":"object","description":"an image or a file"},
		"opaque":{"type":"object","description":"data that the provider expects back"},
		"usage":{"type":"object","description":"tokens so far; the last one counts"},
		"stop":{"type":"string","description":"why the reply ended; it is then complete"},
		"model":{"type":"string","description":"the model that answers"},
		"id":{"type":"string","description":"the provider's id of the reply"},
		"agent":{"type":"string","description":"name of the agent whose reply it is"}},
		"required":["part","agent"]}`),
}

// EventSchemas returns one JSON Schema document with a definition for each kind
// of event and for deltas. It allows members that later versions add.
func EventSchemas() (json.RawMessage, error) {
	type object struct {
		Type        string                     `json:"type"`
		Description string                     `json:"description"`
		Properties  map[string]json.RawMessage `json:"properties"`
		Required    []string                   `json:"required"`
	}
	defs, one := map[string]any{}, []map[string]string{}
	for name, schema := range deltaSchemas {
		defs[name] = schema
	}
	for _, k := range EventKinds {
		o := object{"object", k.Title, map[string]json.RawMessage{}, []string{"thread", "seq", "kind", "time"}}
		for _, list := range [][]string{CommonFields, k.Fields} {
			for _, name := range list {
				o.Properties[name] = memberSchemas[name]
			}
		}
		kind, err := json.Marshal(map[string]string{"const": k.Name})
		if err != nil {
			return nil, err
		}
		o.Properties["kind"] = kind
		defs[k.Name] = o
		one = append(one, map[string]string{"$ref": "#/$defs/" + k.Name})
	}
	return json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Events of a thread",
		"oneOf":   one,
		"$defs":   defs,
	}, "", " ")
}
