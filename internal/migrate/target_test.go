package migrate_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// bitRot is a store that changes the last entry of an append to a thread.
type bitRot struct{ store.Store }

func (b *bitRot) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	if strings.HasPrefix(name, "thread/") {
		last := &entries[len(entries)-1]
		*last = bytes.Clone(*last)
		(*last)[len(*last)/2] ^= 1
	}
	return b.Store.Append(ctx, name, after, entries...)
}

// TestDamagedTarget: while the target does not hold what the source has, no thread of
// the source is closed.
func TestDamagedTarget(t *testing.T) {
	from := filled(t)
	if _, err := migrate.Run(t.Context(), from, &bitRot{memstore.New()}, migrate.Options{To: "there", Grace: 1}); err == nil {
		t.Error("a damaged copy was not noticed")
	}
	for name, err := range from.Journals(t.Context(), "") {
		kit.NoErr(t, err)
		for line, err := range from.Read(t.Context(), name, 0) {
			kit.NoErr(t, err)
			if e, err := journal.Peek(line.Seq, line.Data); strings.HasPrefix(name, "thread/") && err == nil && e.Kind == journal.Moved {
				t.Errorf("%s has moved to a target that is damaged", name)
			}
		}
	}
	k := kit.Runtime(t, from, perdure.Options{}, allFlows...)
	_, err := k.Get(t.Context(), "book")
	kit.NoErr(t, err)
}
