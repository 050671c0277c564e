package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// checkpointFrames is how long the WAL gets before it is copied into the
// database and begun again. A page that was written many times is copied
// once, so a long WAL costs less, until reading it does.
const checkpointFrames = 2000

// checkpointHold bounds how long a checkpoint keeps all from writing because
// someone reads what it would begin anew.
const checkpointHold = 5 * time.Millisecond

// checkpoint copies the WAL if it is due. It has the lead. SQLite's own
// checkpoints are off because they swallow a failing sync.
func (w *writer) checkpoint() {
	frames := w.conn.wal.frames()
	if frames < w.due || w.poison.Load() != nil {
		return
	}
	// RESTART keeps other processes from writing. Otherwise they write behind
	// what is being copied, and the WAL gets longer and longer.
	done, err := w.copyWAL("RESTART", checkpointHold)
	switch {
	case err != nil:
		w.poisoned("checkpoint", err)
	case !done:
		w.due = frames + checkpointFrames/2
	}
}

// copyWAL copies the WAL into the database, so that it begins anew, or with
// TRUNCATE is empty. It is false if another connection is in the way for
// longer than hold. It has the lead.
func (w *writer) copyWAL(mode string, hold time.Duration) (done bool, err error) {
	w.conn.setBusyTimeout(hold)
	defer w.conn.setBusyTimeout(0)
	erased := w.erased.Load()
	busy, err := w.conn.pragma("wal_checkpoint(" + mode + ")")
	if isBusy(err) || err == nil && busy != "0" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.conn.wal.end, w.due = 0, checkpointFrames
	if mode == "TRUNCATE" {
		// Cached pages are as they were in the WAL, with what disk.go clears.
		if err := w.conn.forgetPages(); err != nil {
			return false, err
		}
		w.clean = erased
	}
	return true, nil
}

// The patience of erase. At first its tries are quick and disturb nobody. If
// there is always someone who reads, each of them keeps all from writing for a
// while, so that the readers come to an end, and then lets them write as long.
const (
	eraseQuick = 100 * time.Millisecond
	eraseHold  = 50 * time.Millisecond
	mostHold   = 10 * eraseHold
)

// erase removes what was dropped and deleted before from the WAL. Of several
// that wait, one does it for all.
func (w *writer) erase(ctx context.Context) error {
	target, start, hold := w.erased.Load(), time.Now(), time.Duration(0)
	return w.s.retry(ctx, start, func() error {
		if time.Since(start) > eraseQuick {
			if err := w.s.pause(ctx, hold); err != nil {
				return err
			}
			hold = min(max(eraseHold, 2*hold), mostHold)
		}
		select {
		case w.lead <- struct{}{}:
			defer func() { <-w.lead }()
			return w.eraseNow(target, hold)
		case <-ctx.Done():
			return ctx.Err()
		case <-w.s.closing:
			return store.ErrClosed
		}
	})
}

// eraseNow is a try of erase. It has the lead.
func (w *writer) eraseNow(target int64, hold time.Duration) error {
	if w.clean >= target {
		return nil
	}
	if p := w.poison.Load(); p != nil {
		return *p
	}
	ok, err := w.copyWAL("TRUNCATE", hold)
	switch {
	case err != nil:
		w.poisoned("checkpoint", err)
		return *w.poison.Load()
	case !ok:
		return sqlite3.BUSY
	}
	return nil
}

// The patience of eraseLater.
const (
	eraseIdle = time.Second
	eraseMost = time.Minute
)

// eraseLater erases when no write came for eraseIdle, or after eraseMost, so that
// many deletes share one checkpoint.
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
		again = isBusy(w.eraseNow(w.erased.Load(), eraseHold))
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
		if err = w.eraseNow(w.erased.Load(), eraseHold); !isBusy(err) {
			break
		}
		if time.Since(start) > closeErase {
			err = fmt.Errorf("sqlitestore: %s is closed, but its WAL may still contain bytes of deleted cells, because another process is reading it; they are removed when the last process closes the store", w.s.file)
			break
		}
	}
	if cerr := w.conn.close(); cerr != nil && err == nil {
		err = fmt.Errorf("sqlitestore: close %s: %w", w.s.file, cerr)
	}
	return err
}
