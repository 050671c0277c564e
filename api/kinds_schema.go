package api

import "encoding/json"

// memberSchemas are the JSON Schemas of the members of an event.
var memberSchemas = map[string]json.RawMessage{
	"thread":    json.RawMessage(`{"type":"string","description":"id of the thread"}`),
	"seq":       json.RawMessage(`{"type":"integer","minimum":1,"description":"its place in the thread, and its id"}`),
	"life":      json.RawMessage(`{"type":"string","description":"of a thread that uses the id of an erased one: its ids are SEQ-LIFE"}`),
	"time":      json.RawMessage(`{"type":"string","format":"date-time","description":"when it was written"}`),
	"run":       json.RawMessage(`{"type":"string","description":"id of the run"}`),
	"path":      json.RawMessage(`{"type":"string","description":"of the step or other verb in the run"}`),
	"name":      json.RawMessage(`{"type":"string","description":"of a flow, signal or dependency; of an ask its prompt"}`),
	"attempt":   json.RawMessage(`{"type":"integer","description":"which attempt failed"}`),
	"attempts":  json.RawMessage(`{"type":"integer","description":"how many there may be"}`),
	"took_us":   json.RawMessage(`{"type":"integer","description":"microseconds that the function ran, in this attempt"}`),
	"value":     json.RawMessage(`{"description":"input, result, payload, answer or output: any JSON"}`),
	"from":      json.RawMessage(`{"type":"string","description":"the thread that a fork comes from"}`),
	"at":        json.RawMessage(`{"type":"integer","description":"the last sequence that it shares with the fork"}`),
	"import":    json.RawMessage(`{"type":"boolean","description":"all before it came with a file"}`),
	"signer":    json.RawMessage(`{"type":"string","description":"the trusted key by which the file was signed"}`),
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
	"due":       json.RawMessage(`{"type":"string","format":"date-time","description":"when it is time"}`),
	"plan":      json.RawMessage(`{"type":"array","items":{"type":"string"},"description":"names of steps"}`),
	"diff":      json.RawMessage(`{"type":"string","description":"how the code differs from the record"}`),
	"worker":    json.RawMessage(`{"type":"string","description":"id of the worker"}`),
}

// deltaSchemas are those of what is live only: deltas, and the data of those in
// which an agent tells the reply of its model.
var deltaSchemas = map[string]json.RawMessage{
	"delta": json.RawMessage(`{"type":"object","description":"what a step says while it runs; it has no id","properties":{
		"run":{"type":"string","description":"id of the run"},
		"path":{"type":"string","description":"of the step"},
		"pass":{"type":"integer","minimum":0,"description":"grows each time a worker takes up the thread: the attempt of another pass is another one"},
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
		"opaque":{"type":"object","description":"what the provider wants back"},
		"usage":{"type":"object","description":"tokens so far; the last one counts"},
		"stop":{"type":"string","description":"why the reply ended: it is whole"},
		"model":{"type":"string","description":"the model that answers"},
		"id":{"type":"string","description":"of the reply, as the provider calls it"},
		"agent":{"type":"string","description":"name of the agent whose reply it is"}},
		"required":["part","agent"]}`),
}

// EventSchemas returns one JSON Schema document with a definition for each kind
// of event, and for deltas. Members that a later version adds are allowed.
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
