package upkeep

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// importDead is how old an import is that is taken for dead.
const importDead = time.Hour

// imports sees to imports that were cut off: one that is whole is shown, and
// any other dropped. It returns the names of those that may be under way.
func (b *rebuilder) imports(ctx context.Context) (map[string]bool, error) {
	young := map[string]bool{}
	err := b.cells(ctx, archive.ImportKey(""), func(cell store.Cell, name string) error {
		made, ok := madeAt(name)
		if !ok || clock.Now().Sub(made) < importDead {
			young[name] = true
			return nil
		}
		dropped, err := archive.New(b.threads.Tenant(""), nil).FinishImport(ctx, name)
		if dropped {
			b.found.Orphans++
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", name, err)
		}
		return nil
	})
	return young, err
}

// leaveDamage leaves damage alone, which is told where its thread is read.
func leaveDamage(err error) error {
	if errors.Is(err, fault.ErrCorrupt) {
		return nil
	}
	return err
}

// erases finishes what was erased, as far as the gates of threads tell it.
func (b *rebuilder) erases(ctx context.Context) error {
	return b.cells(ctx, threads.GateKey(""), func(gate store.Cell, name string) error {
		if !threads.IsClosed(gate) {
			return nil
		}
		gone, err := b.threads.IsErased(ctx, name)
		if err != nil || !gone {
			return leaveDamage(err)
		}
		b.found.Orphans++
		return b.control("").FinishFound(ctx, name, "")
	})
}

// cells calls a function with each cell below a prefix, a page at a time.
func (b *rebuilder) cells(ctx context.Context, prefix string, see func(cell store.Cell, rest string) error) error {
	for after := ""; ; {
		var page []store.Cell
		for cell, err := range b.threads.Store.List(ctx, prefix, after) {
			if err := b.goOn(err); err != nil {
				return err
			}
			if err != nil {
				break
			}
			if page = append(page, cell); len(page) == rebuildPage {
				break
			}
		}
		for _, cell := range page {
			if err := b.goOn(see(cell, strings.TrimPrefix(cell.Key, prefix))); err != nil {
				return err
			}
			after = cell.Key
		}
		if len(page) < rebuildPage {
			return nil
		}
		if err := b.step(""); err != nil {
			return err
		}
	}
}

// madeAt returns when a thread's name was made, which its first part says.
func madeAt(name string) (time.Time, bool) {
	_, part, ok := strings.Cut(name, ".")
	if !ok || len(part) < 16 {
		return time.Time{}, false
	}
	b, err := threads.Base32.DecodeString(part[:16])
	if err != nil {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b[:8]) >> 8)), true
}

// What was cut off half way is found by the cells that mark it, when nobody
// comes with its id.
