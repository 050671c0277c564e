package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// waitPause keeps a reader from asking all the time about a run that stands
// still and goes on in turns.
const waitPause = 50 * time.Millisecond

// errOver ends a stream as it should.
var errOver = errors.New("server: the stream is over")

// stand is a run that has ended or waits, or why that cannot be known.
type stand struct {
	run *perdure.Run
	err error
}

// waiting tells when the run may have ended, or may not go on without the
// outside.
func (rd *reader) waiting(ctx context.Context, pause time.Duration) <-chan stand {
	told := make(chan stand, 1)
	wait := rd.c.Runtime.WaitEnd
	if rd.wait {
		wait = rd.c.Runtime.Wait
	}
	run := rd.run
	go func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		found, err := wait(ctx, rd.thread, run)
		told <- stand{found, err}
	}()
	return told
}

// finish ends the stream if the run has ended, or stands still and that is
// enough. The thread is looked at as a whole, and then everything up to there
// is sent, so that the end fits what was sent before it.
func (rd *reader) finish(ctx context.Context) error {
	stood := rd.stood
	rd.check, rd.stood = false, nil
	t, err := rd.c.Runtime.Get(ctx, rd.thread)
	if err != nil {
		return err
	}
	run := runOf(t, rd.run)
	if run == nil { // it was taken back
		return fmt.Errorf("%w: %s", perdure.ErrRunNotFound, rd.run)
	}
	if !run.Status.Final() && !(rd.wait && stood != nil && same(stood, run)) {
		return nil
	}
	if rd.pos < t.Seq {
		if err := rd.catchUp(ctx); err != nil {
			return err
		}
	}
	if rd.last > t.Seq { // it has gone on meanwhile
		rd.check = !rd.await
		return nil
	}
	b, err := sse.Encode(string(api.IDOf(rd.last, rd.tag, true)), api.KindDone, doneOf(run))
	if err != nil {
		return err
	}
	if err := rd.add(b); err != nil {
		return err
	}
	return errOver
}

// same reports whether a run still waits as it did. One that went on meanwhile
// may wait for a time by now, which is no end.
func same(a, b *perdure.Run) bool {
	return a.Status == b.Status && a.Resumes == b.Resumes && a.Retries == b.Retries && a.Since.Equal(b.Since) && len(a.Asks) == len(b.Asks)
}

// end tells the reader why the stream ends, where that helps.
func (rd *reader) end(err error) {
	defer rd.stream.end()
	switch {
	case errors.Is(err, api.ErrStopping):
		rd.bye()
		return
	case errors.Is(err, perdure.ErrErased):
		gone := &perdure.Event{Thread: rd.thread, Seq: rd.pos + 1, Kind: "erased", Time: time.Now().UTC()}
		if b, err := sse.Encode("", gone.Kind, gone); err == nil {
			_ = rd.add(b)
		}
	case errors.Is(err, perdure.ErrCorrupt):
		// Coming back changes nothing.
		if b, err := sse.Encode("", api.KindCorrupt, api.ProblemOf(err)); err == nil {
			_ = rd.add(b)
		}
		rd.s.opts.Logger.Warn("an event stream ended at damage", "thread", rd.thread, "error", err)
	case !errors.Is(err, errOver) && !errors.Is(err, context.Canceled):
		// What went wrong is no business of the reader, and it comes back.
		rd.s.opts.Logger.Warn("an event stream ended", "thread", rd.thread, "error", err)
	}
	_ = rd.flush()
}
