package migrate

import "strings"

// treatment is what a migration does with the cells of a family.
type treatment int

const (
	copied  treatment = iota // byte for byte
	rebuilt                  // left out, and rebuilt from the journals of the target
	left                     // left out: it concerns only its own store
)

// families gives the treatment of each family of cells, by the prefix of their keys.
// Cells of any other family are copied.
var families = []struct {
	prefix string
	how    treatment
}{
	{"perdure/salt", copied}, // keys the hashes in names: without it no thread is found
	{"perdure/sign", copied}, // signs exports
	{"perdure/sweep", left},  // progress of upkeep
	{"perdure/copy", left},   // marks of a migration
	{"perdure/moved", left},
	{"perdure/restored", copied}, // part of event ids
	{"perdure/archive/", copied}, // which archives it has used
	{"thread/", copied},          // summaries
	{"id/", copied},              // map ids to names
	{"used/", copied},            // ids of erased threads
	{"erasing/", copied},         // erases of users under way
	{"erased/", copied},          // receipts of those that have ended
	{"archived/", copied},        // threads in the archive, and those that came back
	{"pin/", copied},             // forks and children
	{"gate/", copied},            // erases under way
	{"leaving/", copied},
	{"import/", copied}, // imports under way: upkeep finishes or drops them
	{"index/", copied},  // what lists find threads by
	{"perdure/index", copied},
	{"snapshot/", copied},
	{"blob/", copied},
	{"upload/", copied}, // files that belong to no thread yet
	{"uploaded/", copied},
	{"shelf/", copied}, // memory, files, rules and credentials
	{"schedule/", copied},
	{"perdure/schedules", copied}, // tells workers that a schedule was changed
	{"token/", copied},
	{"token-of/", copied},
	{"ticket/", left}, // expire within seconds
	{"quota/", left},  // what servers tell each other
	{"server/ready", left},
	{"worker/", left}, // leases
	{"due/", rebuilt},
	{"alarm/", rebuilt},
}

// treat returns the treatment of a cell.
func treat(key string) treatment {
	for _, f := range families {
		if strings.HasPrefix(key, f.prefix) {
			return f.how
		}
	}
	return copied
}
