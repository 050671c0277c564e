// Package migrate moves everything in a store to another one: journals entry by
// entry, cells and blobs byte for byte. It may import the packages threads, archive,
// lifecycle and upkeep, what those import, and the wrapper seal.
//
// A migration can be killed at any point and run again. A cell of the target records
// its stage:
//
//  1. The target is empty and reserved for this migration: no runtime opens it.
//  2. Everything is copied while the source is in use.
//  3. A cell of the source says that nothing begins there any more, and transactions
//     of programs that have begun something before are waited for. Each journal is
//     copied to its end, compared, and closed there with a `moved` entry by
//     compare-and-swap, so that no entry is missed. Then the cells are compared
//     again. Now the target is what the source was.
//  4. Every thread of the target is verified along its hash chain, and cells derived
//     from journals are rebuilt. Then runtimes may open the target.
//
// Stores are copied through their wrappers: sealed data is opened by the wrapper of
// the source, and sealed again with new data keys by that of the target.
package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store"
)

// Options are the options of [Run].
type Options struct {
	To       string         // the name of the target, which the source gives in errors from then on; no secrets
	Progress func(Progress) // called after each journal and each page of cells, if not nil
	Grace    time.Duration  // shorter than threads.MovedGrace only if nobody uses the source; 0 means MovedGrace
	Patience time.Duration  // how long to wait for open transactions of programs; 0 means a minute
}

// Progress says how far a migration has come.
type Progress struct {
	Stage    string   // "copying", "waiting", "moving" or "verifying"
	Open     []string // when waiting: whose transactions
	Journals int      // in this stage
	Cells    int
}

// Report says what a migration has moved.
type Report struct {
	To      string `json:"to"`
	Threads int    `json:"threads"`
	Entries uint64 `json:"entries"`
	Cells   int    `json:"cells"`
	Bytes   int64  `json:"bytes"`
	Hints   int    `json:"hints"`          // rebuilt in the target
	Left    int    `json:"left,omitempty"` // credentials left out, as only a sealed store may keep them
	Already bool   `json:"already"`        // an earlier run had completed it
}

// ErrInUse is returned for a target that is not empty. One that was only served is not:
// nothing tells that no process of it is alive and about to begin a thread there.
var ErrInUse = fmt.Errorf("%w: the target is in use", fault.ErrInvalid)

// The stages that the mark of a target records.
const (
	stageEmpty   = ""        // the target is still to be checked for emptiness
	stageCopying = "copying" // the target holds a part of the source
	stageMoved   = "moved"   // the target holds all of the source, which has moved
	stageDone    = threads.CopyDone
)

// migration is one run of a migration.
type migration struct {
	from, to store.Store
	opts     Options
	mark     threads.Copy
	report   Report
	progress Progress
	left     int // credentials that were left out, in the last pass over the cells
}

// Run moves everything from one store to another, or continues a migration that was
// interrupted. Its error says what to do; after one that is not about the content of
// the stores, run it again.
func Run(ctx context.Context, from, to store.Store, opts Options) (*Report, error) {
	if opts.Grace == 0 {
		opts.Grace = threads.MovedGrace
	}
	if opts.Patience == 0 {
		opts.Patience = time.Minute
	}
	m := &migration{from: from, to: to, opts: opts, report: Report{To: opts.To}}
	if err := m.run(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return &m.report, nil
}

func (m *migration) run(ctx context.Context) error {
	if err := m.take(ctx); err != nil {
		return err
	}
	if m.mark.Stage == stageEmpty {
		if err := m.checkEmpty(ctx); err != nil {
			return err
		}
		if err := m.advance(ctx, stageCopying); err != nil {
			return err
		}
	}
	if m.mark.Stage == stageCopying {
		if err := m.copyAndMove(ctx); err != nil {
			return err
		}
		if err := m.advance(ctx, stageMoved); err != nil {
			return err
		}
	}
	if m.mark.Stage == stageDone {
		m.report.Already = true
		return nil
	}
	for _, f := range families {
		if f.how == rebuilt { // nothing is due in the source
			if err := store.DeletePrefix(ctx, m.from, f.prefix); err != nil {
				return err
			}
		}
	}
	if err := threads.MarkMoved(ctx, m.from, m.mark.To); err != nil { // no earlier: summaries are copied
		return err
	}
	t, err := threads.NewCopy(ctx, m.to, slog.New(slog.DiscardHandler), time.Second)
	if err != nil {
		return err
	}
	if err := m.verify(ctx, t); err != nil {
		return err
	}
	rebuilt, err := upkeep.Rebuild(ctx, t)
	if err != nil {
		return err
	}
	m.report.Hints, m.report.Left = rebuilt.Hints, m.left
	return m.advance(ctx, stageDone)
}

// copyAndMove copies while the source is in use, then closes the source to writes and
// copies the rest.
func (m *migration) copyAndMove(ctx context.Context) error {
	moved, err := threads.ReadCopy(ctx, m.from, threads.MovedCell)
	if err != nil {
		return err
	}
	if moved == nil {
		m.progress = Progress{Stage: "copying"}
		journals, cells, err := m.count(ctx) // what comes later is copied later
		if err != nil {
			return err
		}
		if _, err := m.journals(ctx, journals, m.copyJournal); err != nil {
			return err
		}
		if err := m.copyCells(ctx, cells); err != nil {
			return err
		}
	}
	if err := m.markSource(ctx); err != nil {
		return err
	}
	select { // until every process has looked at the source's mark again
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(m.opts.Grace):
	}
	if err := m.awaitTransactions(ctx); err != nil {
		return err
	}
	m.progress = Progress{Stage: "moving"}
	for unmoved := 1; unmoved > 0; {
		if unmoved, err = m.journals(ctx, math.MaxInt, m.moveJournal); err != nil {
			return err
		}
	}
	if err := m.copyCells(ctx, math.MaxInt); err != nil {
		return err
	}
	return m.dropDropped(ctx)
}

// count returns how many journals and cells the source has.
func (m *migration) count(ctx context.Context) (journals, cells int, err error) {
	for _, err := range m.from.Journals(ctx, "") {
		if err != nil {
			return 0, 0, err
		}
		journals++
	}
	for _, err := range m.from.List(ctx, "", "") {
		if err != nil {
			return 0, 0, err
		}
		cells++
	}
	return journals, cells, nil
}

// source returns a fingerprint of the source.
func (m *migration) source(ctx context.Context) (string, error) {
	salt, err := threads.Secret(ctx, m.from, threads.SaltCell, sha256.Size)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte("perdure migrate "), salt...))
	return hex.EncodeToString(sum[:16]), nil
}

// checkUnsealed returns an error if a store is sealed and was opened without its keys.
func checkUnsealed(ctx context.Context, what string, s store.Store) error {
	for _, err := range s.List(ctx, "~seal/", "") {
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: the %s is sealed; its keys are needed to open it", fault.ErrInvalid, what)
	}
	return nil
}

// Moved returns the name of the store that a migration of the source has begun to close
// it for, "" if none has. That target exists, and no other can be the target.
func Moved(ctx context.Context, from store.Store) (string, error) {
	if err := checkUnsealed(ctx, "source", from); err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	moved, err := threads.ReadCopy(ctx, from, threads.MovedCell)
	if err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	if moved == nil {
		return "", nil
	}
	return moved.To, nil
}

// take reserves the target for this run of the migration.
func (m *migration) take(ctx context.Context) error {
	for what, s := range map[string]store.Store{"source": m.from, "target": m.to} {
		if err := checkUnsealed(ctx, what, s); err != nil {
			return err
		}
	}
	if err := m.checkCredentials(ctx); err != nil {
		return err
	}
	if c, err := threads.ReadCopy(ctx, m.from, threads.CopyCell); err != nil {
		return err
	} else if c != nil && c.Stage != stageDone {
		return fmt.Errorf("%w: a migration into the source is not complete; complete that first", fault.ErrInvalid)
	}
	source, err := m.source(ctx)
	if err != nil {
		return err
	}
	m.mark = threads.Copy{ID: journal.NewID(), Source: source, To: m.opts.To}
	moved, err := threads.ReadCopy(ctx, m.from, threads.MovedCell)
	if err != nil {
		return err
	}
	run := journal.NewID()
	_, err = store.Update(ctx, m.to, threads.CopyCell, func(old store.Cell) ([]byte, error) {
		if old.Version != "" {
			var found threads.Copy
			if err := json.Unmarshal(old.Value, &found); err != nil {
				return nil, fmt.Errorf("%w: the mark of an earlier migration: %w", fault.ErrCorrupt, err)
			}
			if found.Source != source {
				return nil, fmt.Errorf("%w: the target holds a copy of another store; use an empty one", fault.ErrInvalid)
			}
			m.mark = found
		}
		if moved != nil && moved.ID != m.mark.ID {
			return nil, &fault.MovedError{To: moved.To}
		}
		if m.mark.Stage == stageDone {
			return nil, threads.ErrNothing
		}
		m.mark.Run = run
		return json.Marshal(m.mark)
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

// checkEmpty returns an error if the target holds anything but the mark. A runtime
// that opens the target writes its salt before it looks for the mark a second time:
// so either it is refused there, or its salt is seen here.
func (m *migration) checkEmpty(ctx context.Context) error {
	used := func(what string) error {
		cell, err := m.to.Get(ctx, threads.CopyCell)
		if err == nil {
			err = m.held(ctx) // or else what is there may be another run's copy
		}
		if err == nil {
			err = m.to.Delete(ctx, cell.Key, cell.Version)
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: it holds %s; use an empty store", ErrInUse, what)
	}
	for name, err := range m.to.Journals(ctx, "") {
		if err != nil {
			return err
		}
		return used(fmt.Sprintf("the journal %.60q", name))
	}
	for cell, err := range m.to.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if cell.Key != threads.CopyCell {
			return used(fmt.Sprintf("the cell %.60q", cell.Key))
		}
	}
	return nil
}

// held returns an error if another run has taken the migration over.
func (m *migration) held(ctx context.Context) error {
	now, err := threads.ReadCopy(ctx, m.to, threads.CopyCell)
	if err == nil && (now == nil || now.Run != m.mark.Run) {
		err = fmt.Errorf("%w: another run of this migration has taken over", fault.ErrInvalid)
	}
	return err
}

// advance records that a stage was reached.
func (m *migration) advance(ctx context.Context, stage string) error {
	next := m.mark
	next.Stage = stage
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	_, err = store.Update(ctx, m.to, threads.CopyCell, func(old store.Cell) ([]byte, error) {
		var now threads.Copy
		if err := json.Unmarshal(old.Value, &now); err != nil || now.Run != m.mark.Run {
			return nil, fmt.Errorf("%w: another run of this migration has taken over", fault.ErrInvalid)
		}
		return value, nil
	})
	m.mark = next
	return err
}

// markSource writes the mark that tells users of the source to begin nothing there.
func (m *migration) markSource(ctx context.Context) error {
	if err := m.held(ctx); err != nil {
		return err
	}
	value, err := json.Marshal(threads.Copy{ID: m.mark.ID, Source: m.mark.Source, To: m.mark.To})
	if err != nil {
		return err
	}
	_, err = store.Update(ctx, m.from, threads.MovedCell, func(old store.Cell) ([]byte, error) {
		if old.Version == "" {
			return value, nil
		}
		var found threads.Copy
		if err := json.Unmarshal(old.Value, &found); err != nil {
			return nil, fmt.Errorf("%w: cell %q: %w", fault.ErrCorrupt, old.Key, err)
		}
		if found.ID != m.mark.ID {
			return nil, &fault.MovedError{To: found.To}
		}
		return nil, threads.ErrNothing
	})
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

// tell reports progress.
func (m *migration) tell() {
	if m.opts.Progress != nil {
		m.opts.Progress(m.progress)
	}
}

// verify checks every thread of the target along its hash chain, with its blobs.
func (m *migration) verify(ctx context.Context, t *threads.Threads) error {
	m.progress = Progress{Stage: "verifying"}
	m.report = Report{To: m.report.To}
	a := archive.New(t.Tenant(""), nil)
	prefix := threads.JournalKey("")
	for key, err := range m.to.Journals(ctx, "") {
		if err != nil {
			return err
		}
		if name, ok := strings.CutPrefix(key, prefix); ok {
			v, err := a.VerifyNamed(ctx, name)
			if errors.Is(err, fault.ErrErased) { // upkeep finishes the erase
				continue
			}
			if err != nil {
				return fmt.Errorf("verifying %s: %w", key, err)
			}
			if !v.OK() {
				return fmt.Errorf("%w: thread %s: %s", fault.ErrCorrupt, cmp.Or(v.Thread, key), v.Problem)
			}
			m.report.Threads++
			m.report.Entries += v.Entries
			m.report.Bytes += v.Bytes
		}
		m.progress.Journals++
		m.tell()
	}
	for cell, err := range m.to.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if treat(cell.Key) == copied {
			m.report.Cells++
			m.report.Bytes += int64(len(cell.Value))
		}
	}
	return nil
}
