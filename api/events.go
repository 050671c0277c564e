package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// ListEvents selects events of a thread.
type ListEvents struct {
	Thread string  `path:"thread" json:"-" jsonschema:"id of the thread"`
	LastID EventID `header:"Last-Event-ID" json:"-" jsonschema:"only later events; a browser sends it when it reconnects. It takes precedence over after"`
	After  EventID `query:"after" json:"-" jsonschema:"only events after this one: a sequence, or an id from a stream"`
	Run    string  `query:"run" json:"-" jsonschema:"only events of this run; the stream ends with it"`
	Until  string  `query:"until" json:"-" jsonschema:"with run: end, or wait to end the stream also when the run waits for a person"`
	Deltas string  `query:"deltas" json:"-" jsonschema:"no omits live deltas from a stream"`
	Limit  int     `query:"limit" json:"-" jsonschema:"of a page: how many to return, up to 1000; 100 by default"`
	Ticket string  `query:"ticket" json:"-" jsonschema:"a one-time ticket in place of a token, see tickets.create"`
}

// EventPage is a page of events.
type EventPage struct {
	Events []perdure.Event `json:"events" jsonschema:"the events"`
	Next   uint64          `json:"next,omitempty" jsonschema:"after for the next page, followed by -LIFE where events have a life; absent if there are no more events yet"`
}

// EventID is the id of an event in a stream: the sequence, or SEQ.done of the
// event that ends the stream of a run. On a thread that reuses the id of an erased
// one it is SEQ-LIFE, or SEQ-LIFE.done. "" means no event.
type EventID string

// IDOf returns the id of an event of a thread with the given life or, if done is set,
// of the end of a stream after that event.
func IDOf(seq uint64, life string, done bool) EventID {
	id := EventID(strconv.FormatUint(seq, 10))
	if life != "" {
		id += EventID("-" + life)
	}
	if done {
		id += doneSuffix
	}
	return id
}

const doneSuffix = ".done"

// AnyLife replaces the life in an If-Match that has only a sequence: SEQ-*.
const AnyLife = "*"

// Parse returns the sequence and the life of an id, and whether the id marks the
// end of a stream.
func (id EventID) Parse() (seq uint64, life string, done bool, err error) {
	number, done := strings.CutSuffix(string(id), doneSuffix)
	number, life, tagged := strings.Cut(number, "-")
	seq, err = strconv.ParseUint(number, 10, 64)
	if err != nil || IDOf(seq, life, done) != id || tagged && life == "" {
		return 0, "", false, Invalid("%.40q is not an event id", string(id))
	}
	return seq, life, done, nil
}

// The kinds of stream events besides those of the thread.
const (
	KindDelta = "delta" // a perdure.DeltaEvent; it has no id
	KindDone  = "done"  // a Done; the stream of a run ends

	// KindCorrupt ends the stream of a thread that is damaged after the last
	// event: a Problem; it has no id.
	KindCorrupt = "corrupt"
	KindOpen    = "open" // of the tenant's stream: list again; later changes follow
	KindNews    = "thread"
	KindGone    = "gone"
)

// Done is the data of the event that ends the stream of a run: its kind is
// "done", and its id is that of the run's last event followed by ".done".
type Done struct {
	Thread string            `json:"thread" jsonschema:"id of the thread"`
	Run    string            `json:"run" jsonschema:"id of the run"`
	Status perdure.Status    `json:"status" jsonschema:"succeeded, failed or cancelled, or the status in which it waits"`
	Output json.RawMessage   `json:"output,omitempty" jsonschema:"what it returned"`
	Error  string            `json:"error,omitempty" jsonschema:"why it failed"`
	Spent  map[string]int64  `json:"spent,omitempty" jsonschema:"what it used, by unit"`
	Asks   []perdure.AskInfo `json:"asks,omitempty" jsonschema:"what it waits for"`
}

// News is the data of an event of the tenant's stream: a listed thread that is
// new, changed or erased.
type News struct {
	Thread *perdure.Summary `json:"thread,omitempty" jsonschema:"the thread as a list shows it"`
	Gone   string           `json:"gone,omitempty" jsonschema:"id of a thread that was erased"`
}

// WatchThreads follows the changes of a tenant's threads.
type WatchThreads struct {
	User   string `query:"user" json:"-" jsonschema:"only those of this owner"`
	Ticket string `query:"ticket" json:"-" jsonschema:"a one-time ticket in place of a token, see tickets.create"`
}

// HistoryPage is a page of checkpoints.
type HistoryPage struct {
	Checkpoints []CheckpointRef `json:"checkpoints" jsonschema:"the checkpoints"`
	Next        uint64          `json:"next,omitempty" jsonschema:"after for the next page; absent if there are no more checkpoints yet"`
}

// CheckpointRef is a brief description of a point of a thread's past.
type CheckpointRef struct {
	Seq   uint64    `json:"seq" jsonschema:"for state, diff and fork"`
	Time  time.Time `json:"time" jsonschema:"when it was"`
	Kind  string    `json:"kind" jsonschema:"of its event"`
	Run   string    `json:"run,omitempty" jsonschema:"id of the run"`
	Path  string    `json:"path,omitempty" jsonschema:"of the step"`
	Error string    `json:"error,omitempty" jsonschema:"what went wrong"`
}

// ListHistory selects checkpoints.
type ListHistory struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	After  uint64 `query:"after" json:"-" jsonschema:"only checkpoints after this sequence"`
	Limit  int    `query:"limit" json:"-" jsonschema:"how many to return, up to 1000; 100 by default"`
}

// Operations on events and history.
var (
	EventsList = define[ListEvents, EventPage]("events.list", "GET /v1/threads/{thread}/events", ScopeRead,
		"read a thread's events, or follow them", gives(TypeJSON, TypeEvents),
		doc("With Accept: text/event-stream, it sends every event once, in order, and stays live: see docs/events.md."))
	EventsWatch = define[WatchThreads, News]("events.watch", "GET /v1/events", ScopeRead,
		"follow changes in the list of threads", gives(TypeEvents),
		doc("The event thread has a new or changed thread as lists show it; gone has the id of an erased one. A new connection begins with the event open: list again then, since changes may have been missed."))
	HistoryList = define[ListHistory, HistoryPage]("history.list", "GET /v1/threads/{thread}/history", ScopeRead,
		"list the points of a thread's past that can be viewed and forked")
)
