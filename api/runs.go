package api

import (
	"encoding/json"
	"net/http"

	"github.com/perdure/perdure"
)

// Start describes a run to start.
type Start struct {
	Key     string `header:"Idempotency-Key" json:"-" jsonschema:"the same key gives the same run"`
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Trace   string `header:"Traceparent" json:"-" jsonschema:"trace context, kept in the journal"`

	Flow     string            `json:"flow" jsonschema:"name of the flow"`
	Input    json.RawMessage   `json:"input,omitempty" jsonschema:"what the flow takes"`
	Policy   perdure.Policy    `json:"policy,omitempty" jsonschema:"what to do if the thread is busy: enqueue (default), reject, interrupt, steer, beside"`
	Title    string            `json:"title,omitempty" jsonschema:"title of a new thread"`
	User     string            `json:"user,omitempty" jsonschema:"who owns a new thread; the token's subject by default"`
	Metadata map[string]string `json:"metadata,omitempty" jsonschema:"metadata of a new thread"`
	Budget   map[string]int64  `json:"budget,omitempty" jsonschema:"what the run may spend, by unit"`
	Attach   []string          `json:"attach,omitempty" jsonschema:"ids of uploads that the input refers to"`
}

// StartRun starts a run on a thread.
type StartRun struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread, created on first use"`
	Start
}

// OneRun names a run.
type OneRun struct {
	Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
	Run    string `path:"run" json:"-" jsonschema:"id of the run, or newest"`
}

// Newest stands for the id of the newest run of a thread.
const Newest = "newest"

// RunList holds runs of a thread, in the order in which they were started.
type RunList struct {
	Runs    []*perdure.Run `json:"runs" jsonschema:"the runs"`
	Earlier int            `json:"earlier,omitempty" jsonschema:"how many runs come before them: set before to seq of the first run to get these"`
}

// WaitRun waits for a run.
type WaitRun struct {
	OneRun
	End     bool `query:"end" json:"-" jsonschema:"wait for its end, even while it waits for someone"`
	Seconds int  `query:"seconds" json:"-" jsonschema:"how many seconds to wait at most, up to 60; 30 by default"`
}

// Waited is the result of waiting for a run.
type Waited struct {
	Run  *perdure.Run `json:"run" jsonschema:"the run as it is now"`
	Over bool         `json:"over" jsonschema:"the run has ended or cannot continue without input; if false, wait again"`
}

// ControlRun controls a run: it cancels, pauses, resumes or retries it.
type ControlRun struct {
	OneRun
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Reason  string `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// Resumed is the result of resuming a run.
type Resumed struct {
	Run     *perdure.Run `json:"run" jsonschema:"the run as it is now"`
	Resumed bool         `json:"resumed" jsonschema:"a pause was lifted"`
	Note    string       `json:"note,omitempty" jsonschema:"why there was nothing to do"`
}

// BundleRun asks for a bundle about a run, to attach to a ticket.
type BundleRun struct {
	OneRun
	Names    bool `query:"names" json:"-" jsonschema:"with the names of flows, steps, signals and units"`
	Hosts    bool `query:"hosts" json:"-" jsonschema:"with the names of machines"`
	Contents bool `query:"contents" json:"-" jsonschema:"with everything: names, texts of errors, the whole thread"`
}

// Operations on runs.
var (
	RunsNew = define[Start, perdure.Run]("runs.new", "POST /v1/runs", ScopeRun,
		"start a run on a new thread", status(http.StatusAccepted), gives(TypeJSON, TypeEvents))
	RunsStart = define[StartRun, perdure.Run]("runs.start", "POST /v1/threads/{thread}/runs", ScopeRun,
		"start a run", status(http.StatusAccepted), gives(TypeJSON, TypeEvents),
		doc("It returns immediately. With Accept: text/event-stream, it streams the run's events instead, until the run ends or waits for someone. The run does not depend on the connection."))
	RunsList = define[GetThread, RunList]("runs.list", "GET /v1/threads/{thread}/runs", ScopeRead,
		"list the runs of a thread")
	RunsGet = define[OneRun, perdure.Run]("runs.get", "GET /v1/threads/{thread}/runs/{run}", ScopeRead,
		"get a run")
	RunsWait = define[WaitRun, Waited]("runs.wait", "GET /v1/threads/{thread}/runs/{run}/wait", ScopeRead,
		"wait until a run has ended or cannot continue without input")
	RunsPostMortem = define[OneRun, perdure.PostMortem]("runs.postmortem", "GET /v1/threads/{thread}/runs/{run}/postmortem", ScopeRead,
		"say why a run went wrong, what it may have done, and what can be done now",
		doc("It gathers errors, stacks of panics, passes of workers, lost workers, what was spent, and effects that may have happened, from the run's journal. It is meant for failed, blocked and quarantined runs, but works for all."))
	RunsBundle = define[BundleRun, []byte]("runs.bundle", "GET /v1/threads/{thread}/runs/{run}/bundle", ScopeAdmin,
		"get a zip file about a run, for a support ticket", gives(TypeZip),
		doc("It has the post-mortem, the shape of the journal, versions, options, workers and log lines. Without contents, it includes nothing that users, models or tools wrote."))
	RunsCancel = define[ControlRun, perdure.Run]("runs.cancel", "POST /v1/threads/{thread}/runs/{run}/cancel", ScopeRun,
		"cancel a run")
	RunsPause = define[ControlRun, perdure.Run]("runs.pause", "POST /v1/threads/{thread}/runs/{run}/pause", ScopeRun,
		"stop a run before its next step, until it is resumed")
	RunsResume = define[ControlRun, Resumed]("runs.resume", "POST /v1/threads/{thread}/runs/{run}/resume", ScopeRun,
		"resume a paused run", doc("If the run is not paused, it says so and changes nothing. Runs continue on their own after a crash or an answer."))
	RunsRetry = define[ControlRun, perdure.Run]("runs.retry", "POST /v1/threads/{thread}/runs/{run}/retry", ScopeRun,
		"continue a failed, blocked or quarantined run")
	RunsAgain = define[ControlRun, perdure.Run]("runs.again", "POST /v1/threads/{thread}/runs/{run}/again", ScopeRun,
		"start a new run with the flow and input of an earlier one", status(http.StatusAccepted))
)
