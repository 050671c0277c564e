package storetest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

func init() {
	maps.Copy(breaks, upgradeBreaks)
	maps.Copy(subtle, upgradeSubtle)
}

// current returns the version of a cell, "" if there is none.
func (b *broken) current(key string) store.Version {
	cell, _ := b.Store.Get(context.Background(), key)
	return cell.Version
}

// bend makes batches after how has changed them.
func bend(b *broken, how func(*store.Batch)) {
	b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
		made.Cells = slices.Clone(made.Cells)
		how(&made)
		return b.Store.AppendBatch(ctx, made)
	}
}

// leaveOut makes batches without some of their cells.
func leaveOut(b *broken, which func(store.Batch, store.Write) bool) {
	bend(b, func(made *store.Batch) {
		all := *made
		made.Cells = slices.DeleteFunc(made.Cells, func(w store.Write) bool { return which(all, w) })
	})
}

// afterwards makes batches, and then something if they were refused.
func afterwards(b *broken, do func(ctx context.Context, made store.Batch, err error) error) {
	b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
		last, err := b.Store.AppendBatch(ctx, made)
		if err != nil {
			if err = do(ctx, made, err); err == nil {
				last = made.After + uint64(len(made.Entries))
			}
		}
		return last, err
	}
}

// oneByOne makes the writes of a batch with two cells one after the other.
func oneByOne(b *broken, journalFirst bool) {
	b.batch = func(ctx context.Context, made store.Batch) (last uint64, err error) {
		if made.Journal != "j" || len(made.Cells) != 2 || made.Cells[0].Key != "first" {
			return b.Store.AppendBatch(ctx, made)
		}
		if journalFirst {
			last, err = b.Store.Append(ctx, made.Journal, made.After, made.Entries...)
			time.Sleep(200 * time.Microsecond)
		}
		for _, w := range made.Cells {
			if _, putErr := b.Store.Put(ctx, w.Key, w.Value, w.Prev); putErr != nil {
				return 0, putErr
			}
		}
		if !journalFirst {
			time.Sleep(200 * time.Microsecond)
			last, err = b.Store.Append(ctx, made.Journal, made.After, made.Entries...)
		}
		return last, err
	}
}

// staleCell returns the conflict of a batch's first required cell that is not at
// its version.
func (b *broken) staleCell(made store.Batch) error {
	for _, w := range made.Cells {
		if now := b.current(w.Key); now != w.Prev && !w.Optional {
			return &store.CellConflict{Key: w.Key, Err: store.NotVersion(w.Key, w.Prev, now)}
		}
	}
	return nil
}

// upgradeBreaks are the part of breaks for upgrades, and upgradeSubtle that of subtle.
var upgradeBreaks = map[string]func(*broken){
	"cell/unsynced": func(b *broken) { // does not compare
		b.unsynced = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			if now := b.current(key); now != "" {
				prev = now
			}
			return b.Store.Put(ctx, key, value, prev)
		}
	},
	"batch/made": func(b *broken) { // tells what was there before
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			last, err := b.Store.AppendBatch(ctx, made)
			for _, w := range made.Cells {
				if err == nil && w.Made != nil {
					*w.Made = w.Prev
				}
			}
			return last, err
		}
	},
	"batch/whole": func(b *broken) { // forgets removals
		leaveOut(b, func(made store.Batch, w store.Write) bool { return w.Key == "removed" && len(made.Cells) == 4 })
	},
	"batch/journal-first": func(b *broken) { // looks at the cells first
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			if err := b.staleCell(made); err != nil && endsWith(b.Store.Read(ctx, made.Journal, 0)) == nil {
				return 0, err
			}
			return b.Store.AppendBatch(ctx, made)
		}
	},
	"batch/cell-conflicts": func(b *broken) { // has written the cells before the stale one
		afterwards(b, func(ctx context.Context, made store.Batch, err error) error {
			cell := (*store.CellConflict)(nil)
			for _, w := range made.Cells {
				if len(made.Cells) != 5 || !errors.As(err, &cell) || w.Key == cell.Key {
					break
				}
				if !w.Remove {
					_, _ = b.Store.Put(ctx, w.Key, w.Value, w.Prev)
				}
			}
			return err
		})
	},
	"batch/optional": func(b *broken) { // requires all
		bend(b, func(made *store.Batch) {
			for i := range made.Cells {
				made.Cells[i].Optional = made.Cells[i].Optional && made.Cells[i].Remove
			}
		})
	},
	"batch/versions-never-repeat": func(b *broken) { // saves the write of a value that is there
		leaveOut(b, func(_ store.Batch, w store.Write) bool {
			cell, err := b.Store.Get(context.Background(), w.Key)
			return err == nil && !w.Remove && string(w.Value) == "same" && string(cell.Value) == "same"
		})
	},
	"batch/limits": func(b *broken) { // the last write of a cell wins
		bend(b, func(made *store.Batch) {
			if n := len(made.Cells); n == 2 && made.Cells[0].Key == made.Cells[1].Key {
				made.Cells = made.Cells[1:]
			}
		})
	},
	"batch/dropped": func(b *broken) { // writes the cells all the same
		afterwards(b, func(ctx context.Context, made store.Batch, err error) error {
			if errors.Is(err, store.ErrDropped) && !made.Cells[0].Remove {
				_, _ = b.Store.Put(ctx, made.Cells[0].Key, made.Cells[0].Value, made.Cells[0].Prev)
			}
			return err
		})
	},
	"batch/closed": func(b *broken) {
		afterwards(b, func(_ context.Context, _ store.Batch, err error) error {
			if errors.Is(err, store.ErrClosed) {
				return nil
			}
			return err
		})
	},
	"batch/one-winner": func(b *broken) { // checks, then acts
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			n := len(made.Cells)
			if n != 2 || made.Cells[1].Key != "cell" || made.Cells[1].Prev == "" || b.staleCell(made) != nil {
				return b.Store.AppendBatch(ctx, made)
			}
			time.Sleep(window)
			made.Cells = slices.Clone(made.Cells)
			for {
				made.Cells[1].Prev = b.current("cell")
				last, err := b.Store.AppendBatch(ctx, made)
				if !errors.Is(err, store.ErrConflict) {
					return last, err
				}
			}
		}
	},
	"batch/seen-together": func(b *broken) { oneByOne(b, true) },
	"batch/cancelled-leaves-no-half": func(b *broken) {
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			if err := ctx.Err(); err != nil {
				_, _ = b.Store.Append(context.WithoutCancel(ctx), made.Journal, made.After, made.Entries...)
				return 0, err
			}
			return b.Store.AppendBatch(ctx, made)
		}
	},
	"batch/wakes": func(b *broken) { deafTo(b, "woken/new") },
}

// deafTo makes watchers of a prefix sleep for ever.
func deafTo(b *broken, deaf string) {
	b.batch = b.Store.AppendBatch
	b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
		if prefix == deaf {
			return func(yield func(struct{}) bool) { yield(struct{}{}) }
		}
		return b.Store.Watch(ctx, prefix)
	}
}

var upgradeSubtle = map[string]func(*broken){
	"cell/unsynced: shown later": func(b *broken) {
		var mu sync.Mutex
		late := map[string]store.Cell{} // the last write of a cell is seen with the next
		b.unsynced = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			mu.Lock()
			defer mu.Unlock()
			before, _ := b.Store.Get(ctx, key)
			version, err := b.Store.Put(ctx, key, value, prev)
			if err == nil {
				late[key] = before
			}
			return version, err
		}
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			cell, err := b.Store.Get(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if before := late[key]; err == nil && before.Version != "" {
				cell.Value = slices.Clone(before.Value)
			}
			return cell, err
		}
	},
	"batch/whole: shows the caller's slices": func(b *broken) {
		var kept sync.Map
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			if len(made.Cells) == 4 {
				kept.Store(made.Cells[0].Key, made.Cells[0].Value)
			}
			return b.Store.AppendBatch(ctx, made)
		}
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			return func(yield func(store.Cell, error) bool) {
				for cell, err := range b.Store.List(ctx, prefix, after) {
					if own, ok := kept.Load(cell.Key); ok {
						cell.Value = slices.Clone(own.([]byte))
					}
					if !yield(cell, err) {
						return
					}
				}
			}
		}
	},
	"batch/cell-conflicts: names no cell": func(b *broken) {
		afterwards(b, func(_ context.Context, _ store.Batch, err error) error {
			if cell := (*store.CellConflict)(nil); errors.As(err, &cell) {
				return cell.Err
			}
			return err
		})
	},
	"batch/cell-conflicts: removes whatever is there": func(b *broken) {
		bend(b, func(made *store.Batch) {
			for i, w := range made.Cells {
				if now := b.current(w.Key); w.Remove && len(made.Cells) == 5 && now != "" {
					made.Cells[i].Prev = now
				}
			}
		})
	},
	"batch/optional: overwrites": func(b *broken) {
		bend(b, func(made *store.Batch) {
			for i, w := range made.Cells {
				if w.Optional && !w.Remove {
					made.Cells[i].Prev = b.current(w.Key)
				}
			}
		})
	},
	"batch/optional: goes on behind an outdated one": func(b *broken) {
		leaveOut(b, func(made store.Batch, w store.Write) bool {
			return w.Optional && len(made.Cells) == 6 && b.current(w.Key) != w.Prev
		})
	},
	"batch/optional: requires nothing behind an outdated one": func(b *broken) {
		leaveOut(b, func(made store.Batch, w store.Write) bool { return w.Key == "r2" })
	},
	"batch/optional: never written": func(b *broken) {
		leaveOut(b, func(made store.Batch, w store.Write) bool {
			return w.Optional && !strings.HasPrefix(w.Key, "woken/") && store.CheckBatch(made) == nil
		})
	},
	"batch/limits: takes as many as it can": func(b *broken) {
		bend(b, func(made *store.Batch) { made.Cells = made.Cells[:min(len(made.Cells), store.MaxWrites)] })
	},
	"batch/dropped: looks at the cells first": func(b *broken) {
		b.batch = func(ctx context.Context, made store.Batch) (uint64, error) {
			if err := b.staleCell(made); err != nil && endsWith(b.Store.Read(ctx, made.Journal, 0)) != nil {
				return 0, err
			}
			return b.Store.AppendBatch(ctx, made)
		}
	},
	"batch/one-winner: leaves the entries of the others": func(b *broken) {
		afterwards(b, func(ctx context.Context, made store.Batch, err error) error {
			if cell := (*store.CellConflict)(nil); errors.As(err, &cell) && len(made.Cells) == 2 {
				_, _ = b.Store.Append(ctx, made.Journal, made.After, made.Entries...)
			}
			return err
		})
	},
	"batch/seen-together: the cells first":   func(b *broken) { oneByOne(b, false) },
	"batch/wakes: not the journal":           func(b *broken) { deafTo(b, "woken/j") },
	"batch/wakes: not for what is removed":   func(b *broken) { deafTo(b, "woken/removed") },
	"batch/wakes: not for what was optional": func(b *broken) { deafTo(b, "woken/optional") },
}
