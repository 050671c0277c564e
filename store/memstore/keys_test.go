package memstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// TestKeys: whatever is added and removed, the names are those of a sorted list.
func TestKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var k keys
	var want []string
	for n := range 20_000 {
		name := strconv.Itoa(r.IntN(3000))
		at, found := slices.BinarySearch(want, name)
		// It grows, then shrinks to nothing, then grows again.
		if r.IntN(100) < []int{90, 10, 2, 60}[n/5000] {
			k.add(name)
			if !found {
				want = slices.Insert(want, at, name)
			}
		} else {
			k.remove(name)
			if found {
				want = slices.Delete(want, at, at+1)
			}
		}
		if n%100 > 0 && n < 19_000 {
			continue
		}
		from := strconv.Itoa(r.IntN(3000))
		at, _ = slices.BinarySearch(want, from)
		if got := slices.Collect(k.from(from)); !slices.Equal(got, want[at:]) {
			t.Fatalf("after %d changes %d names from %q, want %d", n+1, len(got), from, len(want)-at)
		}
	}
}
