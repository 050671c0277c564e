package api

import (
	"net/http"

	"github.com/perdure/perdure"
)

// BulkRequest describes a bulk job.
type BulkRequest struct {
	Verb       perdure.BulkVerb    `json:"verb" jsonschema:"what to do to each thread: cancel, retry, erase, archive or export"`
	Filter     perdure.ListOptions `json:"filter,omitzero" jsonschema:"which threads, as in the list of threads"`
	All        bool                `json:"all,omitempty" jsonschema:"has to be set if the filter selects all threads"`
	Dependents bool                `json:"dependents,omitempty" jsonschema:"erase: forks and children too, even if the filter does not select them"`
	Rate       int                 `json:"rate,omitempty" jsonschema:"threads per second, up to 10000; 100 by default"`
	Reason     string              `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// StartBulk starts a bulk job.
type StartBulk struct {
	Key string `header:"Idempotency-Key" json:"-" jsonschema:"the same key gives the same job"`
	BulkRequest
}

// OneBulk names a bulk job.
type OneBulk struct {
	Job string `path:"job" json:"-" jsonschema:"id of the job"`
}

// BulkList holds the bulk jobs of a tenant.
type BulkList struct {
	Jobs []*perdure.Bulk `json:"jobs" jsonschema:"the jobs, newest first"`
}

// BulkScope returns the scope that a bulk job needs: that of its verb on one thread.
func BulkScope(v perdure.BulkVerb) Scope {
	if v == perdure.BulkCancel || v == perdure.BulkRetry {
		return ScopeRun
	}
	return ScopeAdmin
}

// Operations on many threads.
var (
	BulkPlan = define[BulkRequest, perdure.BulkPlan]("bulk.plan", "POST /v1/bulk/plan", ScopeRead,
		"show what a bulk job would find now", doc("It changes nothing."))
	BulkStart = define[StartBulk, perdure.Bulk]("bulk.start", "POST /v1/bulk", ScopeRun,
		"apply one change to all threads that a filter selects, in the background", status(http.StatusAccepted),
		doc("It needs the scope that the verb needs for one thread: admin for erase, archive and export, which writes files to the archive. Threads that are created or change after the job began are left alone, except that a cancel also applies to threads that change. A thread that fails is reported and does not stop the others. A tenant, and each of its users, may have 20 jobs that are running or wait for a worker. If there are more jobs than workers carry out at a time, tenants, users and jobs take turns."))
	BulksList = define[Nothing, BulkList]("bulk.list", "GET /v1/bulk", ScopeRead,
		"list bulk jobs", doc("It returns all of them, newest first. Jobs that have ended are listed for 30 days."))
	BulkGet = define[OneBulk, perdure.Bulk]("bulk.get", "GET /v1/bulk/{job}", ScopeRead,
		"get a bulk job and its progress")
	BulkStop = define[OneBulk, perdure.Bulk]("bulk.stop", "POST /v1/bulk/{job}/stop", ScopeRun,
		"stop a bulk job", doc("It needs the scope that the verb needs for one thread. The worker notices within a second or two, and then the job says what was done. That is not undone."))
	BulkResume = define[OneBulk, perdure.Bulk]("bulk.resume", "POST /v1/bulk/{job}/resume", ScopeRun,
		"continue a bulk job that was stopped", doc("It needs the scope that the verb needs for one thread."))
)
