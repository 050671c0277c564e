package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/api"
)

func (s *Server) travelRoutes() {
	handle(s, api.StateGet, s.getState)
	handle(s, api.MessagesList, s.listMessages)
	handle(s, api.FilesList, s.listFiles)
	raw(s, api.BlobsGet, s.getBlob)
	handle(s, api.FamilyGet, func(ctx context.Context, c *Call, in *api.OneThread) (*perdure.Family, error) {
		return c.Runtime.Family(ctx, in.Thread)
	})
	handle(s, api.DiffGet, s.getDiff)
	handle(s, api.ThreadsFork, s.forkThread)
	handle(s, api.ThreadsRewind, s.rewindThread)
	handle(s, api.HistoryList, s.listHistory)
}

// stateAt returns a thread at a point. The header ETag names the sequence if that
// is the present.
func (c *Call) stateAt(ctx context.Context, in *api.AtThread) (*perdure.Checkpoint, error) {
	life, err := "", error(nil)
	if in.At == 0 { // before the state, so that it is not newer than that
		if life, err = c.Runtime.Tag(ctx, in.Thread); err != nil {
			return nil, err
		}
	}
	at, err := c.Runtime.StateAt(ctx, in.Thread, in.At)
	if err == nil && in.At == 0 {
		c.etag(at.Seq, life)
	}
	return at, err
}

func (s *Server) getState(ctx context.Context, c *Call, in *api.AtThread) (*api.State, error) {
	at, err := c.stateAt(ctx, in)
	if err != nil {
		return nil, err
	}
	todos, err := agent.TodosAt(at.State)
	return &api.State{Checkpoint: *at, Todos: todos}, unreadable(in.Thread, err)
}

func (s *Server) listMessages(ctx context.Context, c *Call, in *api.AtThread) (*api.MessageList, error) {
	at, err := c.stateAt(ctx, in)
	if err != nil {
		return nil, err
	}
	records, err := agent.Transcript(at.State)
	return &api.MessageList{Seq: at.Seq, Messages: some(records)}, unreadable(in.Thread, err)
}

// unreadable reports state under a key of package agent that no agent wrote: a
// flow or an import can.
func unreadable(thread string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: thread %s: %v", perdure.ErrCorrupt, thread, err)
}

// listFiles lists files without their texts, or one file with its text.
func (s *Server) listFiles(ctx context.Context, c *Call, in *api.ListFiles) (*api.FileList, error) {
	at, err := c.stateAt(ctx, &in.AtThread)
	if err != nil {
		return nil, err
	}
	all, err := files.At(at.State)
	if err != nil {
		return nil, unreadable(in.Thread, err)
	}
	if in.Path == "" {
		for i := range all {
			all[i].Text = ""
		}
		return &api.FileList{Seq: at.Seq, Files: some(all)}, nil
	}
	i := slices.IndexFunc(all, func(f files.File) bool { return f.Path == in.Path })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no file %.200q", api.ErrNotFound, in.Path)
	}
	return &api.FileList{Seq: at.Seq, Files: all[i : i+1]}, nil
}

// getStateBlob responds with bytes that an agent keeps in the state.
func (s *Server) getStateBlob(w http.ResponseWriter, r *http.Request, c *Call, in *api.GetBlob) error {
	at, err := c.Runtime.StateAt(r.Context(), in.Thread, in.At)
	if err != nil {
		return err
	}
	data, media, err := agent.BlobAt(at.State, in.Hash)
	if errors.Is(err, files.ErrNotFound) {
		return fmt.Errorf("%w: thread %s has no blob %.80q", api.ErrNotFound, in.Thread, in.Hash)
	}
	if err != nil {
		return unreadable(in.Thread, err)
	}
	if err := c.load.hold(len(data)); err != nil {
		return err
	}
	sendBlob(w, media, int64(len(data)))
	w.Write(data)
	return nil
}

func (s *Server) getDiff(ctx context.Context, c *Call, in *api.DiffThreads) (*perdure.Difference, error) {
	return c.Runtime.Diff(ctx, perdure.Point{Thread: in.Thread, Seq: in.From}, perdure.Point{Thread: cmp.Or(in.With, in.Thread), Seq: in.To})
}

func (s *Server) forkThread(ctx context.Context, c *Call, in *api.ForkThread) (*perdure.Fork, error) {
	for key := range in.State {
		if strings.HasPrefix(key, "agent.") { // callers may not write what agents said and did
			return nil, api.Invalid("the state key %.40q belongs to package agent", key)
		}
	}
	if in.Keep && !c.Who.May(api.ScopeAnswer) {
		return nil, fmt.Errorf("%w: keeping answers means answering again, and needs the scope %s", api.ErrScope, api.ScopeAnswer)
	}
	f, err := c.Runtime.Fork(ctx, perdure.ForkRequest{Thread: in.Thread, At: in.At, As: in.As, Title: in.Title, Input: given(in.Input), State: values(in.State),
		Keep: in.Keep, By: c.Who.Subject, Groups: c.Who.Groups, Reason: in.Reason, IfSeq: in.IfMatch})
	if err != nil {
		return nil, err
	}
	c.header.Set("Location", threadPath(f.Thread))
	return f, nil
}

// values returns the values of keys for the runtime: null becomes nil.
func values(raw map[string]json.RawMessage) map[string]any {
	if raw == nil {
		return nil
	}
	all := map[string]any{}
	for key, v := range raw {
		all[key] = v
		if string(v) == "null" {
			all[key] = nil
		}
	}
	return all
}

func (s *Server) rewindThread(ctx context.Context, c *Call, in *api.RewindThread) (*perdure.Rewound, error) {
	life, err := c.Runtime.Tag(ctx, in.Thread)
	if err != nil {
		return nil, err
	}
	w, err := c.Runtime.Rewind(ctx, in.Thread, in.To, c.note(in.Reason, in.IfMatch))
	if err != nil {
		return nil, err
	}
	c.etag(w.Seq, life)
	return w, nil
}

// passing are the kinds of events that change nothing, so that a thread's history
// leaves them out.
var passing = []string{"claimed", "released", "nudge", "dumped", "problem", "progress", "intent", "attempt", "waiting", "timer"}

// maxEvents is how many events one page of a history scans.
const maxEvents = 10_000

func (s *Server) listHistory(ctx context.Context, c *Call, in *api.ListHistory) (*api.HistoryPage, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return nil, err
	}
	page := &api.HistoryPage{Checkpoints: []api.CheckpointRef{}}
	seen, last := 0, uint64(0)
	for e, err := range c.Runtime.Events(ctx, in.Thread, perdure.EventOptions{After: in.After, Replay: true}) {
		if err != nil {
			return nil, err
		}
		if len(page.Checkpoints) == limit || seen == maxEvents {
			page.Next = last
			break
		}
		c.load.letGo()
		seen++
		last = e.Seq
		if !slices.Contains(passing, e.Kind) {
			page.Checkpoints = append(page.Checkpoints, api.CheckpointRef{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Run: e.Run, Path: e.Path, Error: e.Error})
		}
	}
	return page, ctx.Err()
}
