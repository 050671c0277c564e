package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/exact"
)

// pageSize is how many items of a list are requested at a time.
const (
	pageSize = 500
	whySize  = 100 // if each of them is explained
)

// Create creates a thread without a run. If the request has no Key, Create adds one, so
// that it can be repeated after a lost connection and still creates only one thread.
func (c *Client) Create(ctx context.Context, q perdure.CreateRequest) (*perdure.Thread, error) {
	state, err := encodeAll("the state", q.State)
	if err != nil {
		return nil, err
	}
	return Do(ctx, c, api.ThreadsCreate, api.CreateThread{Key: cmp.Or(q.Key, newID()), ID: q.Thread, Title: q.Title, User: q.User, Metadata: q.Metadata, State: state})
}

// Get returns everything about a thread, exactly as it is now, with all of its
// runs.
func (c *Client) Get(ctx context.Context, thread string) (*perdure.Thread, error) {
	return c.GetPage(ctx, thread, perdure.RunPage{})
}

// GetPage is Get with only some of the thread's runs.
func (c *Client) GetPage(ctx context.Context, thread string, p perdure.RunPage) (*perdure.Thread, error) {
	t, err := Do(ctx, c, api.ThreadsGet, api.GetThread{Thread: thread, Before: p.Before, Runs: cmp.Or(p.Limit, math.MaxInt32)})
	return withErrors(t), err
}

// List yields the tenant's threads in the order of [perdure.Runtime.List].
func (c *Client) List(ctx context.Context, o perdure.ListOptions) iter.Seq2[perdure.Summary, error] {
	return func(yield func(perdure.Summary, error) bool) {
		q := api.ListThreads{Why: o.Why, User: o.User, Status: o.Status, Flow: o.Flow,
			Updated: o.Updated, UpdatedBefore: o.UpdatedBefore, Created: o.Created, CreatedBefore: o.CreatedBefore, Asks: o.Asks, AsksOf: o.AsksOf, Expiring: o.Expiring, After: o.After}
		if o.AsksOf != nil && len(o.AsksOf) == 0 {
			yield(perdure.Summary{}, fmt.Errorf("%w: asks of nobody; name who, or leave it out for anyone", perdure.ErrInvalid))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(o.Metadata)) {
			q.Metadata = append(q.Metadata, k+"="+o.Metadata[k])
		}
		var damage []string
		for left := o.Limit; ; {
			q.Limit = pageSize
			if o.Why {
				q.Limit = whySize
			}
			if o.Limit > 0 {
				q.Limit = min(left, q.Limit)
			}
			page, err := Do(ctx, c, api.ThreadsList, q)
			if err != nil {
				yield(perdure.Summary{}, err)
				return
			}
			for _, s := range page.Threads {
				if left--; o.Limit > 0 && left < 0 || !yield(s, nil) {
					return
				}
			}
			damage = append(damage, page.Damage...)
			if page.Next == "" || page.Next == q.After || o.Limit > 0 && left <= 0 {
				if len(damage) > 0 {
					yield(perdure.Summary{}, damaged(damage))
				}
				return
			}
			q.After = page.Next
		}
	}
}

// damaged returns the error that reports damaged items after a list.
func damaged(what []string) error {
	return fmt.Errorf("%w: %s", perdure.ErrCorrupt, strings.Join(what, "; "))
}

// SetMetadata changes a thread's title, unless title is nil, and its metadata;
// an empty value removes a key.
func (c *Client) SetMetadata(ctx context.Context, thread string, title *string, metadata map[string]string, n perdure.Note) error {
	_, err := Do(ctx, c, api.ThreadsUpdate, api.UpdateThread{Thread: thread, IfMatch: n.IfSeq, Title: title, Metadata: metadata})
	return err
}

// Erase removes a thread and everything stored for it: see
// [perdure.Runtime.Erase].
func (c *Client) Erase(ctx context.Context, thread string, o perdure.EraseOptions) error {
	_, err := Do(ctx, c, api.ThreadsErase, api.EraseThread{Thread: thread, IfMatch: o.IfSeq, Dependents: o.Dependents, Reason: o.Reason})
	return err
}

// Export writes a thread as one file of JSON lines. It streams; after an error
// the file is incomplete, which [perdure.VerifyExport] detects.
func (c *Client) Export(ctx context.Context, thread string, w io.Writer, o perdure.ExportOptions) error {
	return download(ctx, c, api.ThreadsExport, api.ExportThread{Thread: thread, Redact: o.Redact}, w, "the export of thread "+thread)
}

// download copies the answer of an operation.
func download[In, Out any](ctx context.Context, c *Client, op api.Op[In, Out], in In, w io.Writer, what string) error {
	body, err := Open(ctx, c, op, in, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("client: %s was cut off: %w", what, err)
	}
	return nil
}

// Import creates a thread from an export and returns its id.
func (c *Client) Import(ctx context.Context, rd io.Reader, o perdure.ImportOptions) (string, error) {
	body, err := Open(ctx, c, api.ThreadsImport, api.ImportThread{As: o.As, Trust: strings.Join(o.Trust, ",")}, lend(rd))
	if err != nil {
		return "", err
	}
	defer body.Close()
	var t perdure.Thread
	if err := json.NewDecoder(io.LimitReader(body, c.opts.MaxAnswer)).Decode(&t); err != nil {
		return "", fmt.Errorf("client: the answer of %s: %w", api.ThreadsImport.Name, err)
	}
	return t.ID, nil
}

// Verify checks a thread's audit chain. Damage is not an error: the result says
// what is wrong.
func (c *Client) Verify(ctx context.Context, thread string) (*perdure.Verification, error) {
	return Do(ctx, c, api.ThreadsVerify, api.OneThread{Thread: thread})
}

// encode encodes a value as a Runtime does; nil is omitted.
func encode(what string, v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := exact.Encode(v, reflect.TypeOf(v))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return raw, nil
}

// encodeAll encodes the values of a map; nil becomes null.
func encodeAll(what string, values map[string]any) (map[string]json.RawMessage, error) {
	if values == nil {
		return nil, nil
	}
	raws := make(map[string]json.RawMessage, len(values))
	for key, v := range values {
		raw, err := encode(fmt.Sprintf("%s %q", what, key), v)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			raw = json.RawMessage("null")
		}
		raws[key] = raw
	}
	return raws, nil
}

// StateAt returns a thread as it was at a sequence; 0 means now.
func (c *Client) StateAt(ctx context.Context, thread string, seq uint64) (*perdure.Checkpoint, error) {
	s, err := Do(ctx, c, api.StateGet, api.AtThread{Thread: thread, At: seq})
	if err != nil {
		return nil, err
	}
	withErrors(s.Thread)
	return &s.Checkpoint, nil
}

// Family returns a thread with its ancestors and descendants: see
// [perdure.Runtime.Family].
func (c *Client) Family(ctx context.Context, thread string) (*perdure.Family, error) {
	return Do(ctx, c, api.FamilyGet, api.OneThread{Thread: thread})
}

// Diff returns what changed from one point to another, of the same thread or of
// two branches.
func (c *Client) Diff(ctx context.Context, from, to perdure.Point) (*perdure.Difference, error) {
	q := api.DiffThreads{Thread: from.Thread, From: from.Seq, To: to.Seq}
	if to.Thread != from.Thread {
		q.With = to.Thread
	}
	return Do(ctx, c, api.DiffGet, q)
}

// Fork creates a thread that shares the past of another up to any sequence, and is
// independent from there on: see [perdure.Runtime.Fork]. By and Groups are those
// of the token.
func (c *Client) Fork(ctx context.Context, q perdure.ForkRequest) (*perdure.Fork, error) {
	input, err := encode("the input of the fork", q.Input)
	if err != nil {
		return nil, err
	}
	state, err := encodeAll("the state", q.State)
	if err != nil {
		return nil, err
	}
	// A fork with an id can be repeated after a lost connection.
	return again(ctx, c, api.ThreadsFork, api.ForkThread{Thread: q.Thread, IfMatch: q.IfSeq, At: q.At, As: cmp.Or(q.As, newID()),
		Title: q.Title, Input: input, State: state, Keep: q.Keep, Reason: q.Reason})
}

// Rewind takes a thread back to an earlier sequence: see
// [perdure.Runtime.Rewind].
func (c *Client) Rewind(ctx context.Context, thread string, to uint64, n perdure.Note) (*perdure.Rewound, error) {
	return Do(ctx, c, api.ThreadsRewind, api.RewindThread{Thread: thread, IfMatch: n.IfSeq, To: to, Reason: n.Reason})
}
