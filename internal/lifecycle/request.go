package lifecycle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// Note says who does something and why. If IfSeq is not 0, the thread must be
// at that sequence.
type Note struct {
	By, Reason string
	IfSeq      uint64
}

// Check refuses a note whose texts are too long.
func (n Note) Check() error {
	return errors.Join(fault.CheckText("the reason", n.Reason, 16<<10), fault.CheckText("who asks", n.By, 500))
}

// Check returns what is wrong with a request, its flow and input aside.
func (q *StartRequest) Check() error {
	all := []Policy{journal.PolicyEnqueue, journal.PolicyReject, journal.PolicyInterrupt, journal.PolicySteer, journal.PolicyBeside}
	if !slices.Contains(all, cmp.Or(q.Policy, journal.PolicyEnqueue)) {
		return fmt.Errorf("%w: policy %q; there are %q", fault.ErrInvalid, q.Policy, all)
	}
	if q.Thread != "" {
		if err := threads.CheckID(q.Thread); err != nil {
			return err
		}
	}
	for unit, n := range q.Budget {
		if err := fault.CheckText("the unit of a budget", unit, 200); err != nil || unit == "" || n < 0 {
			return fmt.Errorf("%w: a budget of %d %.40q", fault.ErrInvalid, n, unit)
		}
	}
	return errors.Join(fault.CheckText("the title", q.Title, 1000), fault.CheckText("the user", q.User, 500), fault.CheckText("the key", q.Key, 500),
		fault.CheckText("the trace", q.Trace, 1000), fault.CheckText("who asks", q.By, 500), fault.CheckMetadataSize(q.Metadata))
}

// CreateRequest asks for a thread: see perdure.CreateRequest.
type CreateRequest struct {
	Thread, Title, User string
	Metadata            map[string]string
	State               map[string]any
	Key, By             string
}

// ownKeys is the prefix of package agent's keys in the state.
const ownKeys = "agent."

// body returns what the first entry of the thread says.
func (q *CreateRequest) body() (journal.Body, error) {
	b := journal.Body{User: q.User, Title: &q.Title, Meta: q.Metadata}
	if q.Thread != "" {
		if err := threads.CheckID(q.Thread); err != nil {
			return b, err
		}
	}
	if err := errors.Join(fault.CheckText("the title", q.Title, 1000), fault.CheckText("the user", q.User, 500), fault.CheckText("the key", q.Key, 500),
		fault.CheckText("who asks", q.By, 500), fault.CheckMetadata(q.Metadata)); err != nil {
		return b, err
	}
	for _, key := range slices.Sorted(maps.Keys(q.State)) {
		if err := threads.CheckKey(key); err != nil {
			return b, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
		}
		if strings.HasPrefix(key, ownKeys) {
			return b, fmt.Errorf("%w: the state key %.40q belongs to package agent", fault.ErrInvalid, key)
		}
		if q.State[key] == nil {
			return b, fmt.Errorf("%w: state %.40q has no value", fault.ErrInvalid, key)
		}
		raw, err := exact.Encode(q.State[key], reflect.TypeOf(q.State[key]))
		if err != nil {
			return b, fmt.Errorf("state %q: %w", key, err)
		}
		b.State = append(b.State, journal.Change{Key: key, Set: &journal.Value{JSON: raw}})
	}
	if q.Key != "" {
		all, err := json.Marshal(b)
		if err != nil {
			return b, err
		}
		sum := sha256.Sum256(all)
		b.Key = base64.RawURLEncoding.EncodeToString(sum[:15])
	}
	b.By = q.By // a repeated request may come from someone else
	return b, nil
}

// SetMetadata changes a thread's title and metadata: see perdure.Runtime.SetMetadata.
func (r *Control) SetMetadata(ctx context.Context, thread string, title *string, metadata map[string]string, n Note) error {
	err := errors.Join(n.Check(), fault.CheckMetadataSize(metadata))
	if err == nil && title != nil {
		err = fault.CheckText("the title", *title, 1000)
	}
	if err != nil {
		return err
	}
	_, _, err = r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		changes := maps.Clone(metadata)
		maps.DeleteFunc(changes, func(k, v string) bool { return fault.IsOwnMetadata(k) && v == t.Meta[k] })
		if err := fault.CheckMetadata(changes); err != nil {
			return nil, nil, err
		}
		if title == nil && len(changes) == 0 {
			return nil, nil, threads.ErrNothing
		}
		return metadataLines(title, changes, n), nil, fault.CheckSeq(t, thread, n.IfSeq)
	})
	return err
}

func metadataLines(title *string, changes map[string]string, n Note) []threads.Line {
	return []threads.Line{{Kind: journal.Metadata, Body: journal.Body{Title: title, Meta: changes, By: n.By, Reason: n.Reason}}}
}

// MarkSeen records that someone has seen that a thread has failed: see
// perdure.Runtime.MarkSeen.
func (r *Control) MarkSeen(ctx context.Context, thread string, n Note) error {
	if err := n.Check(); err != nil {
		return err
	}
	_, _, err := r.tenant.ChangeID(ctx, thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		mark := threads.SeenMark(t)
		switch {
		case mark == "":
			return nil, nil, fmt.Errorf("%w: thread %s has not failed", fault.ErrNothingToDo, thread)
		case threads.IsSeen(t):
			return nil, nil, fmt.Errorf("%w: the failure of thread %s was seen before", fault.ErrNothingToDo, thread)
		}
		return metadataLines(nil, map[string]string{fault.SeenKey: mark}, n), nil, fault.CheckSeq(t, thread, n.IfSeq)
	})
	return err
}
