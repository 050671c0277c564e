package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// CreateThread asks for a thread without a run.
type CreateThread struct {
	Key      string                     `header:"Idempotency-Key" json:"-" jsonschema:"the same key gives the same thread"`
	ID       string                     `json:"id,omitempty" jsonschema:"id of the thread; generated if there is none"`
	Title    string                     `json:"title,omitempty" jsonschema:"title of the thread"`
	User     string                     `json:"user,omitempty" jsonschema:"who owns the thread; the token's subject if there is none"`
	Metadata map[string]string          `json:"metadata,omitempty" jsonschema:"metadata of the thread"`
	State    map[string]json.RawMessage `json:"state,omitempty" jsonschema:"the thread's state at its beginning, by key"`
}

// ListThreads chooses threads.
type ListThreads struct {
	User    string         `query:"user" json:"-" jsonschema:"only those of this owner"`
	Status  perdure.Status `query:"status" json:"-" jsonschema:"only those with this status; idle: without a run"`
	Flow    string         `query:"flow" json:"-" jsonschema:"only those of this flow"`
	Updated time.Time      `query:"updated" json:"-" jsonschema:"only those that changed at this time or later"`
	Asks    bool           `query:"asks" json:"-" jsonschema:"only those with open asks"`
	After   string         `query:"after" json:"-" jsonschema:"cursor: next of the page before"`
	Limit   int            `query:"limit" json:"-" jsonschema:"at most so many, up to 1000; 100 if not given"`
}

// ThreadPage is a page of threads, in the order of their creation.
type ThreadPage struct {
	Threads []perdure.Summary `json:"threads" jsonschema:"the threads"`
	Next    string            `json:"next,omitempty" jsonschema:"cursor of the next page; none if this is the last"`
	Damage  []string          `json:"damage,omitempty" jsonschema:"what is damaged, and so may be missing from the page"`
}

// OneThread names a thread.
type OneThread struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
}

// UpdateThread changes what people call a thread.
type UpdateThread struct {
	Thread   string            `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch  uint64            `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence"`
	Title    *string           `json:"title,omitempty" jsonschema:"the new title"`
	Metadata map[string]string `json:"metadata,omitempty" jsonschema:"keys to be set; an empty value removes one"`
}

// EraseThread removes a thread.
type EraseThread struct {
	Thread     string `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch    uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence"`
	Dependents bool   `query:"dependents" json:"-" jsonschema:"forks and children are erased too"`
	Reason     string `query:"reason" json:"-" jsonschema:"why, for the record"`
}

// ExportThread asks for a thread as a file.
type ExportThread struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	Redact bool   `query:"redact" json:"-" jsonschema:"leave out what entries say; it can still be verified"`
}

// ImportThread makes a thread of a file. The body is an export.
type ImportThread struct {
	As    string `query:"as" json:"-" jsonschema:"id of the new thread; the one that it had if not given"`
	Trust string `query:"trust" json:"-" jsonschema:"public keys, separated by commas, by which the file may be signed: what people decided there counts here"`
}

// Operations on threads.
var (
	ThreadsCreate = define[CreateThread, perdure.Thread]("threads.create", "POST /v1/threads", ScopeRun,
		"create a thread without a run", status(http.StatusCreated))
	ThreadsList = define[ListThreads, ThreadPage]("threads.list", "GET /v1/threads", ScopeRead,
		"list threads", doc("Membership is complete; a status may lag a moment behind."))
	ThreadsGet = define[OneThread, perdure.Thread]("threads.get", "GET /v1/threads/{thread}", ScopeRead,
		"look at a thread, exactly as of now", doc("ETag is its last sequence, for If-Match."))
	ThreadsUpdate = define[UpdateThread, perdure.Thread]("threads.update", "PATCH /v1/threads/{thread}", ScopeRun,
		"change a thread's title and metadata")
	ThreadsErase = define[EraseThread, None]("threads.erase", "DELETE /v1/threads/{thread}", ScopeAdmin,
		"erase a thread and all that was kept of it")
	ThreadsExport = define[ExportThread, []byte]("threads.export", "GET /v1/threads/{thread}/export", ScopeAdmin,
		"export a thread as a file", gives(TypeLines))
	ThreadsImport = define[ImportThread, perdure.Thread]("threads.import", "POST /v1/threads/import", ScopeAdmin,
		"make a thread of an export", takes(TypeLines), status(http.StatusCreated),
		doc("Runs that were active are paused. Answers that nothing has come of yet are void, unless the file is signed by a key that is trusted."))
	ThreadsVerify = define[OneThread, perdure.Verification]("threads.verify", "GET /v1/threads/{thread}/verify", ScopeRead,
		"check a thread's audit chain", doc("Damage is no error: problem says what is wrong."))
)
