package api

import "time"

// Usage is what a tenant has and uses.
type Usage struct {
	Tenant   string           `json:"tenant" jsonschema:"whose usage it is"`
	User     string           `json:"user,omitempty" jsonschema:"the user whose part it is, for a token that is limited to one"`
	Threads  int              `json:"threads" jsonschema:"number of threads"`
	Statuses map[string]int   `json:"statuses" jsonschema:"number of threads by status; idle means without a run, moved that they continue in another store"`
	Runs     int              `json:"runs" jsonschema:"number of runs of these threads"`
	Active   int64            `json:"active" jsonschema:"threads with a run that is queued or executed"`
	Bytes    int64            `json:"bytes" jsonschema:"bytes of journals, of the values and files of threads, and of uploads"`
	Uploads  int64            `json:"uploads" jsonschema:"bytes of uploads, which are part of bytes"`
	Spent    map[string]int64 `json:"spent" jsonschema:"what the threads have spent, by unit: agents count tokens and cost, in millionths, as their models report them"`
	Starts   int64            `json:"starts" jsonschema:"starts within the last minute, as counted by servers with quotas"`
	Streams  int64            `json:"streams" jsonschema:"open event streams and waits, as counted by servers with quotas"`
	Quota    map[string]int64 `json:"quota,omitempty" jsonschema:"the tenant's maximums by name; one that is absent is unlimited"`
	Counted  time.Time        `json:"counted" jsonschema:"when threads, runs, bytes and spent were counted"`
}

// UsageGet returns what a tenant uses.
var UsageGet = define[Nothing, Usage]("usage.get", "GET /v1/usage", ScopeRead,
	"show what the tenant has and uses, and its quotas",
	doc("It counts what exists: an erased thread takes its runs, bytes and spending with it. The counts are some seconds old."))
