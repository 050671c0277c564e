package api

import (
	"time"

	"github.com/perdure/perdure"
)

// ArchiveThread moves a thread to the archive.
type ArchiveThread struct {
	Thread  string `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Reason  string `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// RestoreThread brings a thread back from the archive.
type RestoreThread struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	Remove bool   `json:"remove,omitempty" jsonschema:"delete the thread's object in the archive afterwards"`
}

// ListArchived selects archived threads.
type ListArchived struct {
	User   string    `query:"user" json:"-" jsonschema:"only those of this owner"`
	From   time.Time `query:"from" json:"-" jsonschema:"only threads that were archived at this time or later"`
	Before time.Time `query:"before" json:"-" jsonschema:"only threads that were archived before this time"`
	After  string    `query:"after" json:"-" jsonschema:"cursor: next of the previous page"`
	Limit  int       `query:"limit" json:"-" jsonschema:"how many to return, up to 1000; 100 by default"`
}

// ArchivedPage is a page of archived threads, in order of creation.
type ArchivedPage struct {
	Threads []perdure.ArchivedThread `json:"threads" jsonschema:"the threads"`
	Next    string                   `json:"next,omitempty" jsonschema:"cursor of the next page; absent on the last"`
}

// Operations on the archive.
var (
	ThreadsArchive = define[ArchiveThread, perdure.ArchivedThread]("threads.archive", "POST /v1/threads/{thread}/archive", ScopeAdmin,
		"move a thread from the store to the archive", doc("All its runs must have ended, and no forks may depend on it. Repeating it changes nothing. Until the thread is restored, requests for it are answered with 410 and the problem archived."))
	ThreadsRestore = define[RestoreThread, perdure.Thread]("threads.restore", "POST /v1/threads/{thread}/restore", ScopeAdmin,
		"bring a thread back from the archive, as it was", doc("Its entries, keys and ids are unchanged, and what people decided still counts. Repeating it changes nothing."))
	ArchivedList = define[ListArchived, ArchivedPage]("archived.list", "GET /v1/archived", ScopeRead,
		"list the threads that are in the archive")
)
