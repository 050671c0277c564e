// Package host lets packages of this module that build on the kernel use the
// store behind a runtime, for what threads share: memory, rules, credentials.
// The kernel fills in its functions; users of the module cannot reach it.
package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/perdure/perdure/store"
)

// Host is the store behind a runtime, as one tenant's threads see it.
type Host struct {
	Store  store.Store
	Tenant string
	User   *string                      // whose threads the runtime is limited to; nil: all
	Hash   func(texts ...string) []byte // keyed, so that names of cells tell nothing
	Log    *slog.Logger
}

// FromContext returns the host of the run that a context belongs to. The kernel
// sets it.
var FromContext func(ctx context.Context) (*Host, error)

// FromRuntime returns the host of a *perdure.Runtime, nil for anything else.
// The kernel sets it.
var FromRuntime func(runtime any) *Host

// Leaf returns an error unless a context is that of a leaf step, which may call
// no verbs from now on. The kernel sets it.
var Leaf func(ctx context.Context, what string) error

// Misfit blocks the run that a context belongs to, because the code cannot read
// a recorded value, and returns the error with which the run ends its pass. The
// kernel sets it.
var Misfit func(ctx context.Context, where string, raw json.RawMessage, reader string, err error) error

// Ask is an ask, open or not, and whose it is.
type Ask struct {
	Thread string // id
	User   string // the thread's owner
	Kind   string
	Data   json.RawMessage
	Who    []string
	Open   bool
}

// FindAsk returns the ask of a *perdure.Runtime with an id. The kernel sets it.
var FindAsk func(ctx context.Context, runtime any, id string) (*Ask, error)

// groupMark is what the names of groups begin with among those who may answer.
const groupMark = "group:"

// IsGroup reports whether one of those who may is a group.
func IsGroup(who string) bool { return strings.HasPrefix(who, groupMark) }

// May reports whether someone, who is in groups, is among those who may. Nobody
// named means anyone. A name never stands for a group.
func May(who []string, by string, groups []string) bool {
	return len(who) == 0 || slices.ContainsFunc(who, func(name string) bool {
		if group, ok := strings.CutPrefix(name, groupMark); ok {
			return slices.Contains(groups, group)
		}
		return name == by
	})
}

// Encode returns a value as the kernel encodes what it is given: ErrNotJSON if
// JSON cannot carry it. The kernel sets it.
var Encode func(v any) (json.RawMessage, error)

// Recorded returns an error as the kernel reads it from a journal: it matches by
// code. The kernel sets it.
var Recorded func(message string, codes []string) error
