package feed

import (
	"cmp"
	"context"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/threads"
)

// Limits of the tenant's stream.
const (
	newsPause   = 250 * time.Millisecond // between two reads of the list
	newsPending = 1024                   // threads that a slow reader may lag behind; beyond that it has to list again
)

// News finds the changes in the list of a tenant's threads, for all readers.
type News struct {
	tenant string
	cancel context.CancelFunc
	users  int           // guarded by Hub.mu
	Ready  chan struct{} // closed when the list has been read once

	mu      sync.Mutex
	readers map[*NewsReader]bool
	err     error
}

// NewsReader follows a tenant's threads.
type NewsReader struct {
	user  string        // "": all
	Wake  chan struct{} // has a buffer of one
	mu    sync.Mutex
	lost  bool                // too much has changed: list again
	order []string            // ids of what is pending
	items map[string]api.News // by id
}

// tell adds a change, in place of an older one of the same thread.
func (n *NewsReader) tell(id string, item api.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, there := n.items[id]; !there {
		if len(n.order) >= newsPending {
			n.lost = true
			n.order = n.order[:0]
			clear(n.items)
		}
		n.order = append(n.order, id)
	}
	n.items[id] = item
	n.poke()
}

func (n *NewsReader) poke() {
	select {
	case n.Wake <- struct{}{}:
	default:
	}
}

// Take returns the pending changes.
func (n *NewsReader) Take() (lost bool, items []api.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range n.order {
		items = append(items, n.items[id])
	}
	lost, n.lost = n.lost, false
	n.order = n.order[:0]
	clear(n.items)
	return lost, items
}

// Subscribe adds a reader to the news of a tenant.
func (h *Hub) Subscribe(rt *perdure.Runtime, tenant string, rd *NewsReader) *News {
	h.mu.Lock()
	n := h.news[tenant]
	if n == nil {
		ctx, cancel := context.WithCancel(context.Background())
		n = &News{tenant: tenant, cancel: cancel, Ready: make(chan struct{}), readers: map[*NewsReader]bool{}}
		if h.news == nil {
			h.news = map[string]*News{}
		}
		h.news[tenant] = n
		go n.follow(ctx, h, rt)
	}
	n.users++
	h.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readers[rd] = true
	return n
}

// Unsubscribe removes a reader.
func (h *Hub) Unsubscribe(n *News, rd *NewsReader) {
	n.mu.Lock()
	delete(n.readers, rd)
	n.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.users--; n.users == 0 {
		h.dropNews(n)
		n.cancel()
	}
}

// dropNews removes a feed, so that nobody subscribes to it. The mutex is held.
func (h *Hub) dropNews(n *News) {
	if h.news[n.tenant] == n {
		delete(h.news, n.tenant)
	}
}

// follow reads the list whenever it may have changed.
func (n *News) follow(ctx context.Context, h *Hub, rt *perdure.Runtime) {
	changes := Changes[perdure.Summary]{
		Tenant: threads.Behind(rt),
		List: func(ctx context.Context, q threads.Query, after string) iter.Seq2[perdure.Summary, error] {
			return listOf(ctx, rt, q, after)
		},
		Cursor: func(s perdure.Summary) string { return s.Cursor },
		Moved:  func(s perdure.Summary) bool { return s.Moved != "" },
	}
	first := true
	var failed error
	for range rt.Watch(ctx) {
		begin := time.Now()
		if failed = n.update(ctx, &changes, first); failed != nil {
			break
		}
		if first {
			first = false
			close(n.Ready)
		}
		// A long list takes at most a fifth of the time.
		pause := time.NewTimer(max(newsPause, 4*time.Since(begin)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	if failed == nil {
		failed = context.Canceled
	}
	h.mu.Lock()
	h.dropNews(n)
	h.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = failed
	for rd := range n.readers {
		rd.poke()
	}
	if first {
		close(n.Ready)
	}
}

// update reports how the list differs from what is known.
func (n *News) update(ctx context.Context, c *Changes[perdure.Summary], first bool) error {
	return c.Look(ctx, func(was *perdure.Summary, now perdure.Summary) {
		if first || was != nil && reflect.DeepEqual(*was, now) {
			return
		}
		n.tell(now.ID, now.User, api.News{Thread: &now})
	}, func(was perdure.Summary) {
		n.tell(was.ID, was.User, api.News{Gone: was.ID})
	})
}

// listOf lists the threads of a query by status and time, with cursors of a list of
// all threads.
func listOf(ctx context.Context, rt *perdure.Runtime, q threads.Query, after string) iter.Seq2[perdure.Summary, error] {
	o := perdure.ListOptions{After: after}
	if q.Status != nil {
		o.Status, o.Updated = cmp.Or(perdure.Status(*q.Status), perdure.Idle), clock.Stamp(q.Since)
	}
	return func(yield func(perdure.Summary, error) bool) {
		for s, err := range rt.List(ctx, o) {
			s.Cursor = threads.ByCreation(s.Cursor)
			if !yield(s, err) {
				return
			}
		}
	}
}

func (n *News) tell(id, user string, item api.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for rd := range n.readers {
		if rd.user == "" || rd.user == user {
			rd.tell(id, item)
		}
	}
}

// Failed returns why the list is no longer followed, nil while it is.
func (n *News) Failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// NewNewsReader returns a reader of the news of a user; "" is all.
func NewNewsReader(user string) *NewsReader {
	return &NewsReader{user: user, Wake: make(chan struct{}, 1), items: map[string]api.News{}}
}
