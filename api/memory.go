package api

import (
	"encoding/json"

	"github.com/perdure/perdure/agent/memory"
)

// OneMemory names what is remembered: a namespace and a key as segments of a
// path, the key last. A slash inside a segment is %2F.
type OneMemory struct {
	Place []string `path:"place..." json:"-" jsonschema:"the namespace's segments and the key"`
}

// ListMemory chooses what is remembered.
type ListMemory struct {
	NS    []string `query:"ns" json:"-" jsonschema:"segments of the namespace, each one ns; everything below it is listed"`
	Query string   `query:"q" json:"-" jsonschema:"only those in whose key or texts all of these words are"`
	After string   `query:"after" json:"-" jsonschema:"cursor: next of the page before"`
	Limit int      `query:"limit" json:"-" jsonschema:"at most so many, up to 1000; 100 if not given"`
}

// MemoryPage is a page of what is remembered.
type MemoryPage struct {
	Items  []*memory.Item `json:"items" jsonschema:"the values"`
	Next   string         `json:"next,omitempty" jsonschema:"cursor of the next page; none if this is the last"`
	Damage []string       `json:"damage,omitempty" jsonschema:"what is damaged, and so may be missing from the page"`
}

// PutMemory remembers a value.
type PutMemory struct {
	OneMemory
	IfMatch     string          `header:"If-Match" json:"-" jsonschema:"only if this is the version of what is there"`
	IfNoneMatch string          `header:"If-None-Match" json:"-" jsonschema:"*: only if nothing is there"`
	Value       json.RawMessage `json:"value" jsonschema:"the value"`
	TTL         int64           `json:"ttl,omitempty" jsonschema:"seconds after which it is forgotten; never if not given"`
}

// DeleteMemory forgets a value.
type DeleteMemory struct {
	OneMemory
	IfMatch string `header:"If-Match" json:"-" jsonschema:"only if this is the version of what is there"`
}

// Operations on memory.
var (
	MemoryList = define[ListMemory, MemoryPage]("memory.list", "GET /v1/memory", ScopeRead,
		"list what is remembered beyond threads")
	MemoryGet = define[OneMemory, memory.Item]("memory.get", "GET /v1/memory/{place...}", ScopeRead,
		"get a value that is remembered", doc("ETag is its version, for If-Match."))
	MemoryPut = define[PutMemory, memory.Item]("memory.put", "PUT /v1/memory/{place...}", ScopeRun,
		"remember a value")
	MemoryDelete = define[DeleteMemory, None]("memory.delete", "DELETE /v1/memory/{place...}", ScopeRun,
		"forget a value")
)
