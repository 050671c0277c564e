package bulk_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

// TestJobsOnEveryStore carries out all verbs on stores of several kinds, in real time.
func TestJobsOnEveryStore(t *testing.T) {
	const n = 6
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
	} {
		for verb, c := range verbCases(n) {
			t.Run(name+" "+verb, func(t *testing.T) {
				t.Parallel()
				s, err := open(t)
				kit.NoErr(t, err)
				t.Cleanup(func() { s.Close() })
				f := &office{}
				k := kit.New(t, s, attic(t, time.Second), f.flows()...)
				fill(k, n)
				f.mended.Store(true)
				b, err := k.StartBulk(t.Context(), c.q)
				if name == "sealed" && c.q.Verb == perdure.BulkExport {
					kit.WantErr(t, "exports of a sealed store", err, perdure.ErrInvalid)
					return
				}
				kit.NoErr(t, err)
				until := func(what string, holds func() bool) {
					for deadline := time.Now().Add(time.Minute); !holds(); {
						if time.Now().After(deadline) {
							t.Fatalf("never: %s; the job is %+v", what, b)
						}
						time.Sleep(5 * time.Millisecond)
					}
				}
				until("the job is done", func() bool {
					b, err = k.Bulk(t.Context(), b.ID)
					kit.NoErr(t, err)
					return b.State == perdure.BulkDone
				})
				if counts(b) != fmt.Sprint(n, " 0 0") {
					t.Errorf("%+v", b)
				}
				until("the threads have their statuses", func() bool { return cmp.Equal(c.status, tally(k)) })
			})
		}
	}
}
