package api

import (
	"encoding/json"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
)

// AtThread names a thread at a point of its past.
type AtThread struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	At     uint64 `query:"at" json:"-" jsonschema:"as it was at this sequence; now if not given"`
}

// State is a thread as it was at a sequence.
type State struct {
	perdure.Checkpoint
	Todos []agent.Todo `json:"todos,omitempty" jsonschema:"what its agents mean to do"`
}

// MessageList is what was said on a thread.
type MessageList struct {
	Seq      uint64         `json:"seq" jsonschema:"as of this sequence"`
	Messages []agent.Record `json:"messages" jsonschema:"in the order of the journal; the result of a call that a person edited has the decision edit and the args with which it ran, while the call stays as the model made it"`
}

// ListFiles chooses files in the state of a thread.
type ListFiles struct {
	AtThread
	Path string `query:"path" json:"-" jsonschema:"only this one, with its text"`
}

// FileList is files in the state of a thread.
type FileList struct {
	Seq   uint64       `json:"seq" jsonschema:"as of this sequence"`
	Files []files.File `json:"files" jsonschema:"in the order of their paths, without texts unless one is asked for"`
}

// GetBlob names an image or file that messages refer to.
type GetBlob struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	Hash   string `path:"hash" json:"-" jsonschema:"as the message has it"`
	At     uint64 `query:"at" json:"-" jsonschema:"as the thread was at this sequence; now if not given"`
}

// BlobTypes are the media types that blobs are told as. Anything else could be
// taken for a page or a script and is told as [TypeBytes].
var BlobTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp",
	"audio/mpeg", "audio/wav", "audio/ogg", "audio/webm", "audio/mp4", "audio/flac", "audio/aac",
	"video/mp4", "video/webm", "video/ogg", "video/mpeg", "video/quicktime", "application/pdf"}

// DiffThreads compares two points.
type DiffThreads struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	From   uint64 `query:"from" json:"-" jsonschema:"sequence; now if not given"`
	To     uint64 `query:"to" json:"-" jsonschema:"sequence; now if not given"`
	With   string `query:"with" json:"-" jsonschema:"the other thread, in which to is; the same if not given"`
}

// ForkThread asks for a fork.
type ForkThread struct {
	Thread  string                     `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch uint64                     `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence"`
	At      uint64                     `json:"at,omitempty" jsonschema:"the last sequence that both share; now if not given"`
	As      string                     `json:"as,omitempty" jsonschema:"id of the fork; generated if not given"`
	Title   string                     `json:"title,omitempty" jsonschema:"title of the fork; the same if not given"`
	Input   json.RawMessage            `json:"input,omitempty" jsonschema:"replaces the input of the newest run that had not ended there"`
	State   map[string]json.RawMessage `json:"state,omitempty" jsonschema:"keys to be set, or removed if null"`
	Keep    bool                       `json:"keep,omitempty" jsonschema:"answers count that nothing has come of yet; needs the scope answer, and the right to answer each of those asks"`
	Reason  string                     `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// RewindThread asks for a rewind.
type RewindThread struct {
	Thread  string `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence"`
	To      uint64 `json:"to" jsonschema:"sequence at which no run was active"`
	Reason  string `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// Operations that travel in time.
var (
	StateGet = define[AtThread, State]("state.get", "GET /v1/threads/{thread}/state", ScopeRead,
		"look at a thread's state, now or at any time before")
	MessagesList = define[AtThread, MessageList]("messages.list", "GET /v1/threads/{thread}/messages", ScopeRead,
		"read what was said on a thread")
	FilesList = define[ListFiles, FileList]("files.list", "GET /v1/threads/{thread}/files", ScopeRead,
		"list the files in a thread's state, or read one")
	BlobsGet = define[GetBlob, []byte]("blobs.get", "GET /v1/blobs/{thread}/{hash}", ScopeRead,
		"get an image or file that a message refers to", gives(append([]string{TypeBytes}, BlobTypes...)...))
	DiffGet = define[DiffThreads, perdure.Difference]("diff.get", "GET /v1/threads/{thread}/diff", ScopeRead,
		"see what changed between two points")
	ThreadsFork = define[ForkThread, perdure.Fork]("threads.fork", "POST /v1/threads/{thread}/fork", ScopeRun,
		"make a thread that shares the past of another", status(http.StatusCreated),
		doc("Runs that had not ended are paused in the fork: resume them. An approval is for one call in one thread: an answer that nothing has come of yet is void in the fork, and asked anew, unless keep is set."))
	ThreadsRewind = define[RewindThread, perdure.Rewound]("threads.rewind", "POST /v1/threads/{thread}/rewind", ScopeRun,
		"take a thread back to what it was")
)
