package server

import (
	"context"
	"strconv"
	"time"

	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
)

func (s *Server) memoryRoutes() {
	handle(s, api.MemoryList, s.listMemory)
	handle(s, api.MemoryGet, s.getMemory)
	handle(s, api.MemoryPut, s.putMemory)
	handle(s, api.MemoryDelete, s.deleteMemory)
}

// memoryPlace returns the namespace and the key of a value.
func memoryPlace(segments []string) (memory.Namespace, string, error) {
	last := len(segments) - 1
	if last < 1 || segments[last] == "" {
		return nil, "", api.Invalid("the path must have a namespace of at least one segment, and a key")
	}
	return memory.Namespace(segments[:last]), segments[last], nil
}

func (s *Server) listMemory(ctx context.Context, c *Call, in *api.ListMemory) (*api.MemoryPage, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return nil, err
	}
	if err := checkCursor(in.After); err != nil {
		return nil, err
	}
	page, size := &api.MemoryPage{Items: []*memory.Item{}}, 0
	for item, err := range memory.Of(c.Runtime).List(ctx, in.NS, memory.ListOptions{Query: in.Query, After: in.After, Limit: limit + 1}) {
		if err != nil {
			return page, damage(&page.Damage, err)
		}
		if n := len(page.Items); n == limit || size > pageBytes {
			page.Next = page.Items[n-1].Cursor
			break
		}
		size += len(item.Value)
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func (s *Server) getMemory(ctx context.Context, c *Call, in *api.OneMemory) (*memory.Item, error) {
	ns, key, err := memoryPlace(in.Place)
	if err != nil {
		return nil, err
	}
	item, err := memory.Of(c.Runtime).Get(ctx, ns, key)
	if err != nil {
		return nil, err
	}
	c.header.Set("ETag", strconv.Quote(item.Version))
	return item, nil
}

// maxTTL is the longest time to live of a value, in seconds.
const maxTTL = 100 * 365 * 24 * 3600

func (s *Server) putMemory(ctx context.Context, c *Call, in *api.PutMemory) (*memory.Item, error) {
	ns, key, err := memoryPlace(in.Place)
	if err != nil {
		return nil, err
	}
	switch {
	case in.IfNoneMatch != "" && in.IfNoneMatch != "*":
		return nil, api.Invalid("header If-None-Match: only * is supported here")
	case in.IfNoneMatch != "" && in.IfMatch != "":
		return nil, api.Invalid("If-Match and If-None-Match contradict each other")
	case in.TTL < 0 || in.TTL > maxTTL:
		return nil, api.Invalid("ttl: it must be 1 to %d seconds", maxTTL)
	}
	m := memory.Of(c.Runtime)
	o := memory.PutOptions{Version: in.IfMatch, Create: in.IfNoneMatch != "", TTL: time.Duration(in.TTL) * time.Second}
	version, err := m.Put(ctx, ns, key, in.Value, o)
	if err != nil {
		return nil, err
	}
	c.header.Set("ETag", strconv.Quote(version))
	item, err := m.Get(ctx, ns, key)
	if err != nil || item.Version != version {
		// Someone has changed it since: respond with what was put.
		now := time.Now().UTC()
		return &memory.Item{Namespace: ns, Key: key, Value: in.Value, Version: version, Created: now, Updated: now}, nil
	}
	return item, nil
}

func (s *Server) deleteMemory(ctx context.Context, c *Call, in *api.DeleteMemory) (*api.None, error) {
	ns, key, err := memoryPlace(in.Place)
	if err != nil {
		return nil, err
	}
	return nil, memory.Of(c.Runtime).Delete(ctx, ns, key, in.IfMatch)
}
