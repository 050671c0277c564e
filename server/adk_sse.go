package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// adkBlock is an event of a stream, and the step that it is about.
type adkBlock struct {
	id    api.EventID // "": a piece of a reply
	step  string      // the run and path
	event *adkEvent
}

func (s *Server) adkRunSSE(w http.ResponseWriter, r *http.Request, c *call) error {
	leave, err := s.admitStream(c) // before anything is started
	if err != nil {
		return err
	}
	defer leave()
	q, err := s.adkRequest(w, r)
	if err != nil {
		return err
	}
	turn, err := c.adkBegin(r.Context(), q)
	if err != nil {
		return err
	}
	st, err := s.beginADK(w, r, api.IDOf(max(turn.after, turn.run.Seq), turn.tag, false))
	if err != nil {
		return nil // the client is gone
	}
	defer st.end()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	blocks := make(chan adkBlock, 16)
	over := make(chan error, 1)
	go func() {
		over <- c.adkFollow(ctx, turn, func(e perdure.Event, shown *adkEvent) bool {
			select {
			case blocks <- adkBlock{api.IDOf(e.Seq, e.Life, false), e.Run + e.Path, shown}:
				return true
			case <-ctx.Done():
				return false
			}
		})
		close(blocks)
	}()
	pieces := make(chan adkBlock, 256)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		if turn.streaming {
			c.adkPieces(ctx, turn.run, pieces)
		}
	}()
	err = s.adkWrite(ctx, c, st, blocks, pieces)
	cancel()
	<-listening
	why := <-over
	if err == nil && why != nil && r.Context().Err() == nil { // the run cannot be followed
		data, _ := json.Marshal(map[string]string{"error": api.ProblemOf(why).Error()})
		if st.add(append(append([]byte("data: "), data...), "\n\n"...)) == nil {
			_ = st.flush()
		}
	}
	return nil
}

// adkPieces passes on what agents of a run are about to say. Clients put all
// pieces of a reply together and know of no attempts: after a failed one, or
// where a piece is missing or finds no room, the rest of that reply is left out.
// The whole follows.
func (c *call) adkPieces(ctx context.Context, run *perdure.Run, pieces chan<- adkBlock) {
	type progress struct {
		pass    uint64
		attempt int
		next    int64 // offset of the piece that continues the reply
		thought bool  // reasoning was shown
	}
	replies := map[string]*progress{}
	for d, err := range c.Deltas(ctx, run.Thread) {
		if err != nil {
			return
		}
		if d.Run != run.ID {
			continue
		}
		reply := replies[d.Path]
		if reply == nil {
			reply = &progress{pass: d.Pass, attempt: d.Attempt, next: d.Offset}
			replies[d.Path] = reply
		}
		if d.Pass != reply.pass || d.Attempt != reply.attempt || d.Offset != reply.next {
			reply.next = -1 // nothing more
			continue
		}
		reply.next++
		if shown := adkPartial(run.Thread, d, time.Now()); shown != nil {
			// The web interface replaces pieces by the whole reply, which has the
			// reasoning too, only if the last of them looks like a thought.
			if content := shown.Content; content.Parts[0].Thought {
				reply.thought = true
			} else if reply.thought {
				content.Parts = append(content.Parts, adkPart{Thought: true})
			}
			select {
			case pieces <- adkBlock{"", d.Run + d.Path, shown}:
			default:
				reply.next = -1
			}
		}
	}
}

// adkWrite writes blocks until there are no more.
func (s *Server) adkWrite(ctx context.Context, c *call, st *stream, blocks, pieces <-chan adkBlock) error {
	watch := c.watch()
	defer watch.Stop()
	done := map[string]bool{} // steps whose event was sent: pieces of them are void
	for {
		err := watch.due(ctx)
		if err != nil {
			return err
		}
		select {
		case b, more := <-blocks:
			if !more {
				return nil
			}
			if b.event != nil && b.event.Content != nil && b.event.Content.Role == "model" {
				done[b.step] = true
			}
			err = st.adk(b)
		case b := <-pieces:
			if !done[b.step] {
				err = st.adk(b)
			}
		case <-st.quiet.C:
			err = st.heartbeat()
		case <-watch.C:
			err = watch.recheck(ctx)
		case <-s.stop:
			st.bye()
			err = api.ErrStopping
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// beginADK writes the head of a stream. A client that is cut off before the
// first event knows from the id in its header that the run has started. One that
// does not ask for a stream of events as such, as the kit's own does not, reads
// only blocks of one line, with data: it gets no ids, and comments apart.
func (s *Server) beginADK(w http.ResponseWriter, r *http.Request, id api.EventID) (*stream, error) {
	if wantsStream(r) {
		return s.begin(w, id)
	}
	st := s.newStream(w, id)
	st.apart = true
	w.WriteHeader(http.StatusOK)
	if err := st.conn.Flush(); err != nil {
		st.end()
		return nil, err
	}
	return st, nil
}

// adk writes an event at once, without a kind: clients read nothing but data.
func (st *stream) adk(b adkBlock) error {
	if b.event == nil {
		return nil
	}
	raw, err := json.Marshal(b.event)
	if err != nil {
		return err
	}
	var out []byte
	if b.id != "" && !st.apart {
		out = fmt.Appendf(out, "id: %s\n", b.id)
	}
	if err := st.add(append(append(append(out, "data: "...), raw...), "\n\n"...)); err != nil {
		return err
	}
	return st.flush()
}
