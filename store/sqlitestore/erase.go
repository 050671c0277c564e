package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/perdure/perdure/store"
)

// checkpointFrames is how long the WAL gets before it is copied into the
// database and begun again. A page that was written many times is copied
// once, so a long WAL costs less, until reading it does.
const checkpointFrames = 2000

// checkpoint copies the WAL if it is due. It has the lead. SQLite's own
// checkpoints are off because they swallow a failing sync.
func (w *writer) checkpoint() {
	if w.frames < checkpointFrames || w.poison.Load() != nil {
		return
	}
	w.frames = 0
	if _, err := pragma(w.conn, "wal_checkpoint(PASSIVE)"); err != nil && !isBusy(err) {
		w.poisoned("checkpoint", err)
	}
}

// truncateWAL copies the WAL into the database and empties it. It is false if
// another connection is in the way. It has the lead.
func (w *writer) truncateWAL() (bool, error) {
	erased := w.erased.Load()
	busy, err := pragma(w.conn, "wal_checkpoint(TRUNCATE)")
	if isBusy(err) || err == nil && busy != "0" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.clean, w.frames = erased, 0
	return true, nil
}

// erase removes what was dropped and deleted before from the WAL. Of several
// that wait, one does it for all.
func (w *writer) erase(ctx context.Context) error {
	target := w.erased.Load()
	return w.s.retry(ctx, time.Now(), func() error {
		select {
		case w.lead <- struct{}{}:
			defer func() { <-w.lead }()
			return w.eraseNow(target)
		case <-ctx.Done():
			return ctx.Err()
		case <-w.s.closing:
			return store.ErrClosed
		}
	})
}

// eraseNow is a try of erase. It has the lead.
func (w *writer) eraseNow(target int64) error {
	if w.clean >= target {
		return nil
	}
	if p := w.poison.Load(); p != nil {
		return *p
	}
	ok, err := w.truncateWAL()
	switch {
	case err != nil:
		w.poisoned("checkpoint", err)
		return *w.poison.Load()
	case !ok:
		return sqlite.ResultBusy.ToError()
	}
	return nil
}

// The patience of eraseLater.
const (
	eraseIdle = time.Second
	eraseMost = time.Minute
)

// eraseLater erases when no write came for eraseIdle, or after eraseMost: an
// emptied WAL has to grow again, which makes the next syncs slower.
func (w *writer) eraseLater() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.later == nil {
		most := time.Now().Add(eraseMost)
		w.later = time.AfterFunc(eraseIdle, func() { w.eraseIfIdle(most) })
	}
}

func (w *writer) eraseIfIdle(most time.Time) {
	select {
	case w.lead <- struct{}{}:
		defer func() { <-w.lead }()
	case <-w.s.closing:
		return
	}
	again := time.Since(w.written) < eraseIdle && time.Now().Before(most)
	if !again {
		again = isBusy(w.eraseNow(w.erased.Load()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.later == nil: // closed
	case again:
		w.later.Reset(eraseIdle)
	default:
		w.later = nil
	}
}

// closeErase bounds how long Close waits for readers of the WAL.
const closeErase = time.Second

// close ends the writer. Nobody gets the lead after it.
func (w *writer) close() error {
	w.lead <- struct{}{}
	w.mu.Lock()
	if w.later != nil {
		w.later.Stop()
		w.later = nil
	}
	w.mu.Unlock()
	var err error
	for start := time.Now(); w.poison.Load() == nil; time.Sleep(time.Millisecond) {
		if err = w.eraseNow(w.erased.Load()); !isBusy(err) {
			break
		}
		if time.Since(start) > closeErase {
			err = fmt.Errorf("sqlitestore: %s is closed, but the bytes of deleted cells may still be in its WAL, which another process reads; they go when the last process closes it", w.s.file)
			break
		}
	}
	if cerr := w.conn.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("sqlitestore: close %s: %w", w.s.file, cerr)
	}
	return err
}
