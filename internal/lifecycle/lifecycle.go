package lifecycle

import (
	"encoding/json"

	"github.com/perdure/perdure/internal/threads"
)

// Control begins, forks, cancels, retries and erases the threads of a tenant.
type Control struct {
	threads    *threads.Threads
	tenant     *threads.Tenant
	maxQueue   int                                                   // how many inputs may wait on a thread
	checkInput func(flow string, input any) (json.RawMessage, error) // returns the JSON of an input, if the flow takes it
}

// New returns the control of a tenant's threads.
func New(t *threads.Tenant, maxQueue int, checkInput func(flow string, input any) (json.RawMessage, error)) *Control {
	return &Control{threads: t.All, tenant: t, maxQueue: maxQueue, checkInput: checkInput}
}

// Note says who does something, why, and at which sequence of the thread, 0 for
// any.
type Note struct {
	By, Reason string
	IfSeq      uint64
}
