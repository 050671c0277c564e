package client

import (
	"cmp"
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// StateAt returns a thread as it was at a sequence, 0 for now.
func (c *Client) StateAt(ctx context.Context, thread string, seq uint64) (*perdure.Checkpoint, error) {
	s, err := Do(ctx, c, api.StateGet, api.AtThread{Thread: thread, At: seq})
	if err != nil {
		return nil, err
	}
	withErrors(s.Thread)
	return &s.Checkpoint, nil
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

// Fork makes a new thread that shares the past of another up to a sequence: see
// [perdure.Runtime.Fork]. By and Groups
// are those of the token.
func (c *Client) Fork(ctx context.Context, q perdure.ForkRequest) (*perdure.Fork, error) {
	input, err := encode("the input of the fork", q.Input)
	if err != nil {
		return nil, err
	}
	state, err := encodeAll("the state", q.State)
	if err != nil {
		return nil, err
	}
	// A fork with an id can be asked for again when a connection is lost.
	return again(ctx, c, api.ThreadsFork, api.ForkThread{Thread: q.Thread, IfMatch: q.IfSeq, At: q.At, As: cmp.Or(q.As, newID()),
		Title: q.Title, Input: input, State: state, Keep: q.Keep, Reason: q.Reason})
}

// Rewind takes a thread back to what it was at an earlier sequence: see
// [perdure.Runtime.Rewind].
func (c *Client) Rewind(ctx context.Context, thread string, to uint64, n perdure.Note) (*perdure.Rewound, error) {
	return Do(ctx, c, api.ThreadsRewind, api.RewindThread{Thread: thread, IfMatch: n.IfSeq, To: to, Reason: n.Reason})
}
