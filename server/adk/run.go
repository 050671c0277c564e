package adk

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
)

// serveRun responds with all events of a turn in one list.
func serveRun(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	ctx, turn, leave, err := startTurn(w, r, c)
	if err != nil {
		return err
	}
	defer leave()
	events := []*wireEvent{}
	err = followRun(ctx, c, turn, func(_ perdure.Event, e *wireEvent) bool {
		if e != nil {
			events = append(events, e)
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // why it was cut off
	}
	if err != nil {
		return err
	}
	return c.Send(w, http.StatusOK, events)
}

// startTurn does what a request to /run or /run_sse asks for. The request counts
// as a stream before anything is started.
func startTurn(w http.ResponseWriter, r *http.Request, c *server.Call) (context.Context, *excerpt, func(), error) {
	if err := c.MayRead(); err != nil {
		return nil, nil, nil, err
	}
	ctx, leave, err := c.Last(r.Context())
	if err != nil {
		return nil, nil, nil, err
	}
	var turn *excerpt
	q, err := readRequest(w, r, c)
	if err == nil {
		turn, err = beginTurn(r.Context(), c, q)
	}
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	return ctx, turn, leave, nil
}

// block is an event of a stream, and the step that it is about.
type block struct {
	id    api.EventID // "": a piece of a reply
	step  string      // the run and path
	event *wireEvent
}

// serveRunSSE answers with the events of a turn as they happen.
func serveRunSSE(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	ctx, turn, leave, err := startTurn(w, r, c)
	if err != nil {
		return err
	}
	defer leave()
	after := api.IDOf(max(turn.after, turn.run.Seq), turn.tag, false)
	return c.Stream(ctx, w, r, after, func(ctx context.Context) iter.Seq2[server.StreamEvent, error] {
		return func(yield func(server.StreamEvent, error) bool) {
			if err := streamTurn(ctx, c, turn, func(e server.StreamEvent) bool { return yield(e, nil) }); err != nil && ctx.Err() == nil {
				yield(server.StreamEvent{}, err)
			}
		}
	})
}

// streamTurn yields the events of a turn and, if the client wants them, the
// pieces of replies that are being written.
func streamTurn(ctx context.Context, c *server.Call, turn *excerpt, yield func(server.StreamEvent) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	pieces := make(chan block, 256)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		if turn.streaming {
			sendPieces(ctx, c, turn.run, pieces)
		}
	}()
	blocks := make(chan block)
	var failed error // when blocks is closed
	go func() {
		defer close(blocks)
		failed = followRun(ctx, c, turn, func(e perdure.Event, shown *wireEvent) bool {
			select {
			case blocks <- block{api.IDOf(e.Seq, e.Life, false), e.Run + e.Path, shown}:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	defer func() {
		cancel()
		<-listening
		for range blocks { // until it is closed
		}
	}()
	over := map[string]bool{} // steps whose event was sent: pieces of them are void
	for {
		var b block
		select {
		case next, more := <-blocks:
			if !more {
				return failed
			}
			if b = next; b.event != nil && b.event.Content != nil && b.event.Content.Role == "model" {
				over[b.step] = true
			}
		case b = <-pieces:
			if over[b.step] {
				continue
			}
		}
		if b.event != nil && !yield(server.StreamEvent{ID: b.id, Data: b.event}) {
			return nil
		}
	}
}

// sendPieces passes on the replies that a run's agents are writing. Clients join all
// pieces of a reply and know nothing of attempts: after a failed one, or if a piece
// is missing or finds no room, the rest of that reply is left out. The whole reply
// follows.
func sendPieces(ctx context.Context, c *server.Call, run *perdure.Run, pieces chan<- block) {
	type progress struct {
		pass    uint64
		attempt int
		next    int64 // offset of the piece that continues the reply
		thought bool  // reasoning was shown
	}
	replies := map[string]*progress{}
	for d, err := range c.Runtime.Deltas(ctx, run.Thread) {
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
		if shown := showPiece(run.Thread, d, time.Now()); shown != nil {
			// The web interface replaces pieces by the whole reply, which has the
			// reasoning too, only if the last of them looks like a thought.
			if content := shown.Content; content.Parts[0].Thought {
				reply.thought = true
			} else if reply.thought {
				content.Parts = append(content.Parts, wirePart{Thought: true})
			}
			select {
			case pieces <- block{step: d.Run + d.Path, event: shown}:
			default:
				reply.next = -1
			}
		}
	}
}
