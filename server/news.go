package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server/internal/feed"
)

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
	rd := feed.NewNewsReader(cmp.Or(in.User, c.Who.User))
	n := s.hub.Subscribe(s.rt.Tenant(c.Who.Tenant), c.Who.Tenant, rd) // for all who follow them, limited or not
	defer s.hub.Unsubscribe(n, rd)
	select {
	case <-n.Ready:
	case <-s.stop:
		return api.ErrStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := n.Failed(); err != nil {
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

// sendNews sends changes until the reader leaves or the server stops.
func (s *Server) sendNews(ctx context.Context, st *stream, c *Call, n *feed.News, rd *feed.NewsReader) error {
	watch := c.watch()
	defer watch.Stop()
	open := true
	for {
		if err := watch.due(ctx); err != nil {
			return err
		}
		lost, items := rd.Take()
		if open || lost {
			if err := st.encode("", api.KindOpen, struct{}{}); err != nil {
				return err
			}
		}
		open = false
		for _, item := range items {
			kind := api.KindNews
			if item.Gone != "" {
				kind = api.KindGone
			}
			if err := st.encode("", kind, &item); err != nil {
				return err
			}
		}
		if err := st.flush(); err != nil {
			return err
		}
		if err := n.Failed(); err != nil {
			return err
		}
		select {
		case <-rd.Wake:
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
