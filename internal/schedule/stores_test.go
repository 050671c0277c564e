package schedule_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

// TestOnEveryStore has two workers on stores of several kinds, in real time.
func TestOnEveryStore(t *testing.T) {
	ring, err := seal.NewRing("k", map[string][]byte{"k": []byte(strings.Repeat("k", 32))})
	kit.NoErr(t, err)
	for name, open := range map[string]func(t *testing.T) (store.Store, error){
		"filestore": func(t *testing.T) (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(t.TempDir(), "store"), filestore.Options{})
		},
		"sqlitestore": func(t *testing.T) (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlitestore.Options{})
		},
		"sealed": func(t *testing.T) (store.Store, error) { return seal.New(t.Context(), memstore.New(), ring) },
		"plain":  func(*testing.T) (store.Store, error) { return kit.Plain(memstore.New()), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := open(t)
			kit.NoErr(t, err)
			t.Cleanup(func() { s.Close() })
			k := kit.New(t, s, perdure.Options{}, flows()...)
			kit.New(t, s, perdure.Options{}, flows()...)
			made := put(t, k.Runtime, perdure.ScheduleRequest{ID: "s", Every: time.Second, Max: 2, Overlap: perdure.OverlapAllow})
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if now := get(t, k.Runtime, "s"); now.Fired == 2 {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("it never fired twice: %+v", now)
				}
			}
			wantFirings(t, k.Runtime, "s", made.Next)
		})
	}
}
