package migrate

import "strings"

// treatment is what a migration does with the cells of a family.
type treatment int

const (
	copied  treatment = iota // byte for byte
	rebuilt                  // left out, and made anew from the journals of the target
	left                     // left out: it concerns only the store that it is in
)

// families says what becomes of each family of cells, by the prefix of their keys.
// Cells of a family that is not here are copied.
var families = []struct {
	prefix string
	how    treatment
}{
	{"perdure/salt", copied}, // hashes names: without it no name leads to its thread
	{"perdure/sign", copied}, // signs exports
	{"perdure/sweep", left},  // how far upkeep has come
	{"perdure/copy", left},   // marks of a migration
	{"perdure/moved", left},
	{"thread/", copied}, // summaries
	{"id/", copied},     // from ids to names
	{"used/", copied},   // ids of erased threads
	{"pin/", copied},    // forks and children
	{"gate/", copied},   // erases under way
	{"import/", copied}, // imports under way: upkeep finishes or drops them
	{"snapshot/", copied},
	{"blob/", copied},
	{"shelf/", copied}, // memory, files, rules and credentials
	{"token/", copied},
	{"token-of/", copied},
	{"ticket/", left}, // they live for seconds
	{"server/ready", left},
	{"worker/", left}, // leases
	{"due/", rebuilt},
	{"alarm/", rebuilt},
}

// treat returns what becomes of a cell.
func treat(key string) treatment {
	for _, f := range families {
		if strings.HasPrefix(key, f.prefix) {
			return f.how
		}
	}
	return copied
}
