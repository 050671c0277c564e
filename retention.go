package perdure

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/retain"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
)

// Retention is a rule of [Options.Retention]: it says what happens to threads at rest,
// those whose runs have all ended or that never had one. Threads that wait for something,
// that a person has paused, or that are blocked, quarantined or damaged stay.
//
// A thread stays as long as it has forks in the store. Its children go with it, under its
// rule, and must have been at rest for as long. Each thread is read again before it goes;
// if a run has begun meanwhile, it stays.
type Retention struct {
	Tenant  string // only threads of this tenant; "" is all tenants
	Default bool   // only threads of the default tenant; Tenant has to be ""
	Flow    string // only threads whose last run is of this flow; "" is all
	// Keep is how long a thread stays after its last change, or after it was restored
	// from the archive; 0 means until the next check, about a second later. A thread
	// that has had no run yet, or was restored, stays for at least a day.
	Keep    time.Duration
	Forever bool // the thread stays; Keep and Archive have to be zero
	// Archive moves threads to [Options.Archive], see [Runtime.Archive]; otherwise
	// they are erased.
	Archive bool
	// KeepArchived is how long a thread stays in the archive, however it got there,
	// before it is erased; 0 means forever.
	KeepArchived time.Duration
	// Unseen lets failed threads go although nobody has seen them. Otherwise they stay
	// until [Runtime.MarkSeen].
	Unseen bool
}

// checkRetention returns what is wrong with the rules.
func (o *Options) checkRetention() (errs []error) {
	for i, r := range o.Retention {
		bad := func(what string) {
			errs = append(errs, fmt.Errorf("%w: Options.Retention[%d] %s", fault.ErrInvalid, i, what))
		}
		if r.Default && r.Tenant != "" {
			bad("says Default, and also another tenant")
		}
		if r.Keep < 0 || r.KeepArchived < 0 {
			bad("has a negative duration")
		}
		if (r.Archive || r.KeepArchived != 0) && o.Archive == nil {
			bad("is about an archive, but there is none; set Options.Archive, or --archive URL")
		}
		if r.Forever && (r.Keep != 0 || r.Archive) {
			bad("says Forever, and also when threads go")
		}
	}
	return errs
}

// keeper returns what removes threads whose time has come.
func (c *core) keeper() *retain.Keeper {
	k := &retain.Keeper{Threads: c.threads, Rate: c.opts.RetentionRate, Reach: c.reach}
	for _, r := range c.opts.Retention {
		k.Rules = append(k.Rules, retain.Rule(r))
	}
	return k
}

// reach returns what changes the threads of a tenant.
func (c *core) reach(t *threads.Tenant) (*lifecycle.Control, *vault.Vault) {
	r := c.runtime(t)
	return r.life, r.vault()
}

// Reasons why a thread stays although it is due: [RetentionItem.Skipped].
const (
	RetentionPinned  = "pinned"  // forks depend on it, or children in the archive
	RetentionUnseen  = "unseen"  // it has failed, and nobody has seen it
	RetentionChild   = "child"   // a child is not at rest, or has not been for long enough
	RetentionDamaged = "damaged" // it, or a child, cannot be read
	RetentionChanged = "changed" // it changed in the meantime
	RetentionFailed  = "failed"  // it could not be removed, see [RetentionStatus.Errors]
)

// What happens to a thread: [RetentionItem.Action].
const (
	RetentionArchive = "archive"
	RetentionErase   = "erase"
	RetentionExpire  = "expire" // it is erased from the archive
)

// RetentionStatus says what [Options.Retention] does to the threads of a tenant. Workers
// check the threads of all tenants together.
type RetentionStatus struct {
	Rules []Retention `json:"-"`              // the rules of this process that can fit threads of the tenant
	Rate  int         `json:"rate"`           // threads per second
	Begun time.Time   `json:"begun,omitzero"` // when a worker began the last check; zero if there was none
	Ended time.Time   `json:"ended,omitzero"` // when that check ended; zero while it is in progress
	Went  time.Time   `json:"went,omitzero"`  // when threads of the tenant were last removed

	Archived int `json:"archived"` // threads that were archived then
	Erased   int `json:"erased"`
	Expired  int `json:"expired"` // erased from the archive

	Total   RetentionTotal `json:"total"`             // since the beginning
	Skipped map[string]int `json:"skipped,omitempty"` // threads that the last check skipped, by reason
	Errors  []BulkError    `json:"errors,omitempty"`  // the first errors of the last check
}

// RetentionTotal counts threads that were removed.
type RetentionTotal struct {
	Archived int64 `json:"archived"`
	Erased   int64 `json:"erased"`
	Expired  int64 `json:"expired"` // erased from the archive
}

// Retention returns the rules of Options.Retention and what they have done. A runtime that
// is limited to a user gets only the rules and the times of the last check.
func (r *Runtime) Retention(ctx context.Context) (*RetentionStatus, error) {
	state, err := retain.ReadState(ctx, r.core.threads.Store)
	if err != nil {
		return nil, fmt.Errorf("perdure: reading the state of retention: %w", err)
	}
	s := &RetentionStatus{Rules: []Retention{}, Rate: r.core.opts.RetentionRate, Begun: clock.Stamp(state.Begun), Ended: clock.Stamp(state.Ended)}
	for _, rule := range r.core.opts.Retention {
		if (*retain.Rule)(&rule).IsFor(r.tenant.Name) {
			s.Rules = append(s.Rules, rule)
		}
	}
	if r.tenant.Owner != nil {
		return s, nil
	}
	report, err := retain.ReadReport(ctx, r.tenant)
	if err != nil {
		return nil, fmt.Errorf("perdure: reading the state of retention: %w", err)
	}
	s.Went, s.Archived, s.Erased, s.Expired, s.Skipped = clock.Stamp(report.At), report.Archived, report.Erased, report.Expired, report.Skipped
	s.Total = RetentionTotal{report.Total[0], report.Total[1], report.Total[2]}
	s.Errors = each(report.Errors, func(e retain.Problem) BulkError { return BulkError(e) })
	return s, nil
}

// RetentionOptions selects threads that are due.
type RetentionOptions struct {
	After string // the cursor of the last thread seen
	Limit int    // maximum number; 0 means all
}

// RetentionItem is a thread that is due to be archived or erased.
type RetentionItem struct {
	Thread   string    `json:"thread"`
	User     string    `json:"user,omitempty"`
	Flow     string    `json:"flow,omitempty"`
	Status   Status    `json:"status,omitempty"`
	Updated  time.Time `json:"updated"`            // its last change; for the action expire, when it was archived
	Action   string    `json:"action"`             // archive, erase, or expire: it is erased from the archive
	Skipped  string    `json:"skipped,omitempty"`  // why it stays for now, "" if it goes
	By       []string  `json:"by,omitempty"`       // the threads that keep it
	Children []string  `json:"children,omitempty"` // the threads that go with it
	Cursor   string    `json:"cursor"`
}

// RetentionDue yields the tenant's threads that the next check would archive or erase,
// and those that it would skip, with the reason. It changes nothing.
func (r *Runtime) RetentionDue(ctx context.Context, o RetentionOptions) iter.Seq2[RetentionItem, error] {
	return func(yield func(RetentionItem, error) bool) {
		n := 0
		for i, err := range r.core.keeper().Due(ctx, r.tenant, clock.Micros(), o.After) {
			if err != nil {
				yield(RetentionItem{}, fmt.Errorf("perdure: looking for threads whose time has come: %w", err))
				return
			}
			if !yield(RetentionItem{Thread: i.ID, User: i.User, Flow: i.Flow, Status: i.Status, Updated: clock.Stamp(i.Updated), Action: i.Action,
				Skipped: i.Skipped, By: i.By, Children: i.Children(), Cursor: i.Cursor}, nil) {
				return
			}
			if n++; o.Limit > 0 && n >= o.Limit {
				return
			}
		}
	}
}

// MarkSeen records that someone has seen a thread's failure: its metadata perdure.seen is
// set to the time of the failure. Unless a rule has Unseen, [Options.Retention] removes a
// failed thread only after that. The mark does not cover a later failure, after a retry or
// in another run. If the last run has not failed, or is already marked, MarkSeen returns
// ErrNothingToDo.
func (r *Runtime) MarkSeen(ctx context.Context, thread string, n Note) error {
	return r.life.MarkSeen(ctx, thread, lifecycle.Note(n))
}
