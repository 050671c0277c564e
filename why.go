package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/explain"
)

// Why says whether a thread is making progress and, if not, why. It is about the oldest
// run that has not ended, or else about the newest run.
type Why struct {
	State    WhyState  `json:"state"`
	Text     string    `json:"text"`              // for people; without times
	Since    time.Time `json:"since,omitzero"`    // when the state began
	Until    time.Time `json:"until,omitzero"`    // when the state ends by itself, at the latest; zero if it does not, or nobody knows
	Run      string    `json:"run,omitempty"`     // id of the run
	Step     string    `json:"step,omitempty"`    // path of the verb at which it waits; while it works, of the next step of its plan or of its newest outcome
	Attempt  int       `json:"attempt,omitempty"` // of a retry: the next one
	Attempts int       `json:"attempts,omitempty"`
	Worker   string    `json:"worker,omitempty"` // that has the run, or had it when the worker died
}

// WhyState says why a thread makes progress or not.
type WhyState = explain.WhyState

// The states.
const (
	WhyWorking     WhyState = "working"   // a worker executes it
	WhyQueued      WhyState = "queued"    // a worker will take it
	WhyPerson      WhyState = "person"    // it waits for an answer
	WhySignal      WhyState = "signal"    // it waits for a signal
	WhySleep       WhyState = "sleep"     // it waits for a time
	WhyRetry       WhyState = "retry"     // a step failed and is tried again later
	WhyChild       WhyState = "child"     // it waits for a thread that it spawned
	WhyNoWorker    WhyState = "no-worker" // no live worker has its flow
	WhyLease       WhyState = "lease"     // its worker gives no sign of life; others take over when its lease ends
	WhyPaused      WhyState = "paused"
	WhyBlocked     WhyState = "blocked"
	WhyQuarantined WhyState = "quarantined"
	WhyFailed      WhyState = "failed"
	WhyDone        WhyState = "done" // succeeded or cancelled
	WhyIdle        WhyState = "idle" // without a run
	WhyMoved       WhyState = "moved"
)
