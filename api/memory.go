package api

import (
	"encoding/json"

	"github.com/perdure/perdure/agent/memory"
)

// OneMemory names a remembered value: a namespace and a key as segments of a
// path, the key last. A slash inside a segment is %2F.
type OneMemory struct {
	Place []string `path:"place..." json:"-" jsonschema:"the namespace's segments and the key"`
}

// ListMemory selects remembered values.
type ListMemory struct {
	NS    []string `query:"ns" json:"-" jsonschema:"segments of the namespace, one ns each; everything below it is listed"`
	Query string   `query:"q" json:"-" jsonschema:"only values whose key or texts contain all of these words"`
	After string   `query:"after" json:"-" jsonschema:"cursor: next of the previous page"`
	Limit int      `query:"limit" json:"-" jsonschema:"how many to return, up to 1000; 100 by default"`
}

// MemoryPage is a page of remembered values.
type MemoryPage struct {
	Items  []*memory.Item `json:"items" jsonschema:"the values"`
	Next   string         `json:"next,omitempty" jsonschema:"cursor of the next page; absent on the last"`
	Damage []string       `json:"damage,omitempty" jsonschema:"what is damaged and may therefore be missing from the page"`
}

// PutMemory remembers a value.
type PutMemory struct {
	OneMemory
	IfMatch     string          `header:"If-Match" json:"-" jsonschema:"only if this is the current version"`
	IfNoneMatch string          `header:"If-None-Match" json:"-" jsonschema:"* writes only if there is no value"`
	Value       json.RawMessage `json:"value" jsonschema:"the value"`
	TTL         int64           `json:"ttl,omitempty" jsonschema:"seconds until it is forgotten; by default it is kept"`
}

// DeleteMemory forgets a value.
type DeleteMemory struct {
	OneMemory
	IfMatch string `header:"If-Match" json:"-" jsonschema:"only if this is the current version"`
}

// Operations on memory.
var (
	MemoryList = define[ListMemory, MemoryPage]("memory.list", "GET /v1/memory", ScopeRead,
		"list values remembered beyond threads")
	MemoryGet = define[OneMemory, memory.Item]("memory.get", "GET /v1/memory/{place...}", ScopeRead,
		"get a remembered value", doc("ETag is its version, for If-Match."))
	MemoryPut = define[PutMemory, memory.Item]("memory.put", "PUT /v1/memory/{place...}", ScopeRun,
		"remember a value")
	MemoryDelete = define[DeleteMemory, None]("memory.delete", "DELETE /v1/memory/{place...}", ScopeRun,
		"forget a value")
)
