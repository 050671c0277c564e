package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// Limits of the tenant's stream.
const (
	newsPause   = 250 * time.Millisecond // between two looks at the list
	newsPending = 1024                   // threads that a slow reader is behind with; then it has to list anew
)

// news compares the list of a tenant's threads with what it was, for all who
// follow it.
type news struct {
	tenant string
	cancel context.CancelFunc
	users  int           // guarded by eventState.mu
	ready  chan struct{} // closed when the list was read once

	mu      sync.Mutex
	readers map[*newsReader]bool
	err     error
}

// newsReader is one who follows a tenant's threads.
type newsReader struct {
	user  string        // "": all
	wake  chan struct{} // has room for one
	mu    sync.Mutex
	lost  bool                // too much has changed: list anew
	order []string            // ids of what is pending
	items map[string]api.News // by id
}

// tell adds news, in place of older ones of the same thread.
func (n *newsReader) tell(id string, item api.News) {
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

func (n *newsReader) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns what is pending.
func (n *newsReader) take() (lost bool, items []api.News) {
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

// subscribe adds a reader to the news of a tenant.
func (s *Server) subscribe(rt *perdure.Runtime, tenant string, rd *newsReader) *news {
	s.events.mu.Lock()
	n := s.events.news[tenant]
	if n == nil {
		ctx, cancel := context.WithCancel(context.Background())
		n = &news{tenant: tenant, cancel: cancel, ready: make(chan struct{}), readers: map[*newsReader]bool{}}
		if s.events.news == nil {
			s.events.news = map[string]*news{}
		}
		s.events.news[tenant] = n
		go n.follow(ctx, s, rt)
	}
	n.users++
	s.events.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readers[rd] = true
	return n
}

func (s *Server) unsubscribe(n *news, rd *newsReader) {
	n.mu.Lock()
	delete(n.readers, rd)
	n.mu.Unlock()
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	if n.users--; n.users == 0 {
		s.dropNews(n)
		n.cancel()
	}
}

// dropNews lets no one subscribe any more. The mutex is held.
func (s *Server) dropNews(n *news) {
	if s.events.news[n.tenant] == n {
		delete(s.events.news, n.tenant)
	}
}

// follow reads the list whenever it may have changed.
func (n *news) follow(ctx context.Context, s *Server, rt *perdure.Runtime) {
	known := map[string]perdure.Summary{}
	first := true
	var failed error
	for range rt.Watch(ctx) {
		begin := time.Now()
		if failed = n.look(ctx, rt, known, first); failed != nil {
			break
		}
		if first {
			first = false
			close(n.ready)
		}
		// A long list is not read all the time.
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
	s.events.mu.Lock()
	s.dropNews(n)
	s.events.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = failed
	for rd := range n.readers {
		rd.poke()
	}
	if first {
		close(n.ready)
	}
}

// look reads the list and tells how it differs from what is known.
func (n *news) look(ctx context.Context, rt *perdure.Runtime, known map[string]perdure.Summary, first bool) error {
	gone := make(map[string]bool, len(known))
	for id := range known {
		gone[id] = true
	}
	for sum, err := range rt.List(ctx, perdure.ListOptions{}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			clear(gone) // what is damaged may be there
			break
		}
		if err != nil {
			return err
		}
		delete(gone, sum.ID)
		before, there := known[sum.ID]
		if there && before == sum {
			continue
		}
		if there && before.Cursor != sum.Cursor { // another thread, which has the id of one that was erased
			n.tell(sum.ID, before.User, api.News{Gone: sum.ID})
		}
		known[sum.ID] = sum
		if !first {
			n.tell(sum.ID, sum.User, api.News{Thread: &sum})
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for id := range gone {
		n.tell(id, known[id].User, api.News{Gone: id})
		delete(known, id)
	}
	return nil
}

func (n *news) tell(id, user string, item api.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for rd := range n.readers {
		if rd.user == "" || rd.user == user {
			rd.tell(id, item)
		}
	}
}

func (n *news) failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

func (s *Server) watchThreads(w http.ResponseWriter, r *http.Request, c *Call, in *api.WatchThreads) error {
	leave, err := s.admitStream(c)
	if err != nil {
		return err
	}
	defer leave()
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", api.TypeEvents)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	ctx := r.Context()
	rd := &newsReader{user: cmp.Or(in.User, c.Who.User), wake: make(chan struct{}, 1), items: map[string]api.News{}}
	n := s.subscribe(s.rt.Tenant(c.Who.Tenant), c.Who.Tenant, rd) // for all who follow them, limited or not
	defer s.unsubscribe(n, rd)
	select {
	case <-n.ready:
	case <-s.stop:
		return api.ErrStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := n.failed(); err != nil {
		return err
	}
	st, err := s.begin(w, "")
	if err != nil {
		return err
	}
	defer st.end()
	if err := s.sendNews(ctx, st, c, n, rd); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("a stream of news ended", "error", err)
	}
	return nil
}

// sendNews sends what changes, until the reader or the server has enough.
func (s *Server) sendNews(ctx context.Context, st *stream, c *Call, n *news, rd *newsReader) error {
	watch := c.watch()
	defer watch.Stop()
	open := true
	for {
		if err := watch.due(ctx); err != nil {
			return err
		}
		lost, items := rd.take()
		if open || lost {
			if err := st.event(api.KindOpen, struct{}{}); err != nil {
				return err
			}
		}
		open = false
		for _, item := range items {
			kind := api.KindNews
			if item.Gone != "" {
				kind = api.KindGone
			}
			if err := st.event(kind, &item); err != nil {
				return err
			}
		}
		if err := st.flush(); err != nil {
			return err
		}
		if err := n.failed(); err != nil {
			return err
		}
		select {
		case <-rd.wake:
		case <-st.quiet.C:
			if err := st.heartbeat(); err != nil {
				return err
			}
		case <-watch.C:
			if err := watch.recheck(ctx); err != nil {
				return err
			}
		case <-s.stop:
			st.bye()
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// event adds an event without an id.
func (st *stream) event(kind string, data any) error {
	b, err := sse.Encode("", kind, data)
	if err != nil {
		return err
	}
	return st.add(b)
}
