package client

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Archive moves a thread from the store to the archive: see
// [perdure.Runtime.Archive].
func (c *Client) Archive(ctx context.Context, thread string, n perdure.Note) (*perdure.ArchivedThread, error) {
	return Do(ctx, c, api.ThreadsArchive, api.ArchiveThread{Thread: thread, IfMatch: n.IfSeq, Reason: n.Reason})
}

// Restore brings a thread back from the archive: see [perdure.Runtime.Restore].
func (c *Client) Restore(ctx context.Context, thread string, o perdure.RestoreOptions) error {
	_, err := Do(ctx, c, api.ThreadsRestore, api.RestoreThread{Thread: thread, Remove: o.Remove})
	return err
}

// isArchived reports whether an erased event says that the thread is in the archive.
func isArchived(data []byte) bool {
	var e perdure.Event
	return json.Unmarshal(data, &e) == nil && e.Name == "archive"
}

// Archived yields the tenant's archived threads in order of creation.
func (c *Client) Archived(ctx context.Context, o perdure.ArchivedOptions) iter.Seq2[perdure.ArchivedThread, error] {
	return func(yield func(perdure.ArchivedThread, error) bool) {
		q, left := api.ListArchived{User: o.User, From: o.From, Before: o.Before, After: o.After}, o.Limit
		for {
			if o.Limit > 0 {
				q.Limit = min(left, 1000)
			}
			page, err := Do(ctx, c, api.ArchivedList, q)
			if err != nil {
				yield(perdure.ArchivedThread{}, err)
				return
			}
			for _, a := range page.Threads {
				if !yield(a, nil) {
					return
				}
			}
			left -= len(page.Threads)
			if page.Next == "" || o.Limit > 0 && left <= 0 {
				return
			}
			q.After = page.Next
		}
	}
}
