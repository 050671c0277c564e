package perdure_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// edgeQueueDamage changes a bit of the only cell below a prefix.
func edgeQueueDamage(t *testing.T, s store.Store, prefix string) {
	t.Helper()
	keys := keysOf(t, s, prefix)
	if len(keys) != 1 {
		t.Fatalf("below %s are %q", prefix, keys)
	}
	cell, err := s.Get(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Clone(cell.Value)
	value[len(value)-1] ^= 1
	if _, err := s.Put(t.Context(), keys[0], value, cell.Version); err != nil {
		t.Fatal(err)
	}
}

// A damaged hint or alarm of one thread does not keep a worker from all others.
func TestEdgeQueueDamagedHintsHarmNoOthers(t *testing.T) {
	for name, seconds := range map[string]int{"due/": 5, "alarm/": 60} {
		bubble(t, name, func(t *testing.T) {
			ring, err := seal.NewRing("k", map[string][]byte{"k": bytes.Repeat([]byte{7}, 32)})
			if err != nil {
				t.Fatal(err)
			}
			inner := memstore.New()
			s, err := seal.New(t.Context(), inner, ring)
			if err != nil {
				t.Fatal(err)
			}
			k := newKit(t, s, perdure.Options{}, dozing())
			k.start("damaged", "doze", seconds)
			time.Sleep(time.Second)
			synctest.Wait()
			edgeQueueDamage(t, inner, name)
			k.start("near", "doze", 2)
			k.start("far", "doze", 90)
			for _, c := range []struct {
				thread string
				after  time.Duration
			}{{"near", 10 * time.Second}, {"far", 2 * time.Minute}} {
				time.Sleep(c.after)
				if got, err := k.Get(t.Context(), c.thread); err != nil || got.Status != perdure.Succeeded {
					t.Errorf("after %v the run of thread %s is %v, %v", c.after, c.thread, got.Status, err)
				}
			}
		})
	}
}
