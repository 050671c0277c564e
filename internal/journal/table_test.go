package journal

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestTablesAreMaps: whatever is done with tables and their clones, each equals a
// map that shares nothing.
func TestTablesAreMaps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tables, want := []table[int]{{}}, []map[string]int{{}}
	for i := range 20_000 {
		n := random.IntN(len(tables))
		switch what := random.IntN(100); {
		case what == 0 && len(tables) < 8:
			tables, want = append(tables, tables[n].clone()), append(want, maps.Clone(want[n]))
		case what < 5:
			tables[n].rest()
		default:
			key := strconv.Itoa(random.IntN(1500))
			if tables[n].get(key) != want[n][key] {
				t.Fatalf("%s is %d in table %d, want %d", key, tables[n].get(key), n, want[n][key])
			}
			tables[n].set(key, i)
			want[n][key] = i
		}
	}
	for n := range tables {
		if got := maps.Collect(tables[n].all()); !maps.Equal(got, want[n]) {
			t.Errorf("table %d has %d keys, want %d, or other values", n, len(got), len(want[n]))
		}
	}
}
