package perdure

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/archive"
)

// VerifyExport checks an export without a store: that no line of it is changed,
// missing, doubled or out of place, that the entries are chained, and that each
// large value is there and has its hash. Damage is no error: the result says
// what is wrong and where. An error means that rd could not be read.
//
// It holds one line in memory, and what the thread is. That entries make sense
// behind those before them is checked up to the first rewind; Import checks all
// of it. The last line tells a file that was cut or damaged; whoever can
// rewrite the whole file is found out by comparing Head with one that was kept
// elsewhere.
func VerifyExport(rd io.Reader) (*Verification, error) {
	v, err := archive.Read(context.Background(), rd, archive.Taker{})
	return (*Verification)(v), err
}
