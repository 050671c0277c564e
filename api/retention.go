package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// RetentionRule is a rule that says how long threads are kept: see
// [perdure.Retention]. Times are written as 30d, 12h or 0s.
type RetentionRule struct {
	Tenant       string `json:"tenant,omitempty" jsonschema:"only threads of this tenant; absent: all tenants"`
	Default      bool   `json:"default,omitempty" jsonschema:"only threads of the default tenant; tenant has to be absent"`
	Flow         string `json:"flow,omitempty" jsonschema:"only threads whose last run is of this flow; absent: all flows"`
	Keep         string `json:"keep" jsonschema:"how long threads stay after their last change, such as 30d, or forever"`
	Archive      bool   `json:"archive,omitempty" jsonschema:"they go to the archive; otherwise they are erased"`
	KeepArchived string `json:"keep_archived,omitempty" jsonschema:"how long threads stay in the archive, until they are erased; absent: forever"`
	Unseen       bool   `json:"unseen,omitempty" jsonschema:"failed threads go although nobody has seen them"`
}

// Forever stands for a time that never ends.
const Forever = "forever"

// NewRetentionRule returns a rule in the form of the API.
func NewRetentionRule(r perdure.Retention) RetentionRule {
	out := RetentionRule{Tenant: r.Tenant, Default: r.Default, Flow: r.Flow, Keep: FormatAge(r.Keep), Archive: r.Archive, Unseen: r.Unseen}
	if r.Forever {
		out.Keep = Forever
	}
	if r.KeepArchived > 0 {
		out.KeepArchived = FormatAge(r.KeepArchived)
	}
	return out
}

// Rule returns the rule.
func (r *RetentionRule) Rule() (rule perdure.Retention, err error) {
	rule = perdure.Retention{Tenant: r.Tenant, Default: r.Default, Flow: r.Flow, Archive: r.Archive, Unseen: r.Unseen, Forever: r.Keep == Forever}
	if !rule.Forever {
		if rule.Keep, err = ParseAge(r.Keep); err != nil {
			return rule, fmt.Errorf("keep: %w", err)
		}
	}
	if r.KeepArchived != "" && r.KeepArchived != Forever {
		if rule.KeepArchived, err = ParseAge(r.KeepArchived); err != nil {
			return rule, fmt.Errorf("keep_archived: %w", err)
		}
	}
	return rule, nil
}

// ParseAge parses a time such as 30d, 12h or 90m.
func ParseAge(text string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseFloat(days, 64); isDays && err == nil && n >= 0 && n < 100_000 {
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 30d, 12h or 90m", text)
	}
	return d, nil
}

// FormatAge returns a time as ParseAge reads it.
func FormatAge(d time.Duration) string {
	if day := 24 * time.Hour; d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}

// Retention says how long threads are kept, and how many have been removed.
type Retention struct {
	Rules []RetentionRule `json:"rules" jsonschema:"of this server: the first that fits a thread counts"`
	perdure.RetentionStatus
}

// ListDue selects threads that are due to be archived or erased.
type ListDue struct {
	After string `query:"after" json:"-" jsonschema:"cursor: next of the previous page"`
	Limit int    `query:"limit" json:"-" jsonschema:"how many to return, up to 1000; 100 by default"`
}

// DuePage is a page of threads that are due to be archived or erased.
type DuePage struct {
	Threads []perdure.RetentionItem `json:"threads" jsonschema:"the threads, and why some of them stay for now"`
	Next    string                  `json:"next,omitempty" jsonschema:"cursor of the next page; absent on the last"`
}

// SeeThread marks a failed thread as seen.
type SeeThread struct {
	Thread  string `path:"thread" json:"-" jsonschema:"id of the thread"`
	IfMatch uint64 `header:"If-Match" json:"-" jsonschema:"only if this is the thread's last sequence: its ETag"`
	Reason  string `json:"reason,omitempty" jsonschema:"why, for the record"`
}

// Operations on what is kept.
var (
	RetentionGet = define[Nothing, Retention]("retention.get", "GET /v1/retention", ScopeRead,
		"show how long threads are kept, and how many have gone")
	RetentionDue = define[ListDue, DuePage]("retention.due", "GET /v1/retention/due", ScopeRead,
		"list the threads that would be archived or erased now", doc("It changes nothing. Threads that are due but stay for now are listed with the reason."))
	ThreadsSee = define[SeeThread, None]("threads.see", "POST /v1/threads/{thread}/seen", ScopeRun,
		"mark a failed thread as seen", doc("Unless a rule says otherwise, it archives or erases a failed thread only after that. The mark does not cover a later failure."))
)
