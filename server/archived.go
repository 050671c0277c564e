package server

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func (s *Server) archiveRoutes() {
	handle(s, api.ThreadsArchive, func(ctx context.Context, c *Call, in *api.ArchiveThread) (*perdure.ArchivedThread, error) {
		return c.Runtime.Archive(ctx, in.Thread, c.note(in.Reason, in.IfMatch))
	})
	handle(s, api.ThreadsRestore, func(ctx context.Context, c *Call, in *api.RestoreThread) (*perdure.Thread, error) {
		if err := c.Runtime.Restore(ctx, in.Thread, perdure.RestoreOptions{Remove: in.Remove}); err != nil {
			return nil, err
		}
		c.load.letGo()
		return s.getThread(ctx, c, &api.GetThread{Thread: in.Thread})
	})
	handle(s, api.ArchivedList, s.listArchived)
}

func (s *Server) listArchived(ctx context.Context, c *Call, in *api.ListArchived) (*api.ArchivedPage, error) {
	limit, err := pageSize(in.Limit)
	if err == nil {
		err = checkCursor(in.After)
	}
	if err != nil {
		return nil, err
	}
	page := &api.ArchivedPage{Threads: []perdure.ArchivedThread{}}
	for a, err := range c.Runtime.Archived(ctx, perdure.ArchivedOptions{User: in.User, From: in.From, Before: in.Before, After: in.After, Limit: limit + 1}) {
		if err != nil {
			return nil, err
		}
		if n := len(page.Threads); n == limit {
			page.Next = page.Threads[n-1].Cursor
			break
		}
		if c.Who.User != "" { // paths and buckets of the server are not for its users
			a.Where = ""
		}
		page.Threads = append(page.Threads, a)
	}
	return page, nil
}
