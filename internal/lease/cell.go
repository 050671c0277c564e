package lease

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure/store"
)

// Prefix is what the keys of all leases begin with, to list or watch them; the
// worker's id follows.
const Prefix = "worker/"

const (
	// MinTTL is the shortest ttl that Hold accepts.
	MinTTL = time.Millisecond

	// MaxTTL is the longest ttl that Hold accepts, and what a watcher waits
	// for where a cell holds none, a negative or a longer one.
	MaxTTL = 10 * time.Minute
)

var (
	// ErrTaken: another holds a lease under this worker's id. Ids are for
	// one incarnation of a worker; use a new one.
	ErrTaken = errors.New("lease: id is taken")

	// ErrAlive: the worker's lease has moved since it was judged, or was
	// not judged dead by this watcher.
	ErrAlive = errors.New("lease: worker is not known to be dead")
)

// value is what a lease's cell holds.
type value struct {
	N      uint64 `json:"n"`    // grows with each write
	TTL    int64  `json:"ttl"`  // in microseconds
	Host   string `json:"host"` // for people
	Holder string `json:"key"`  // random, so that a holder knows its own writes

	Info json.RawMessage `json:"info,omitempty"` // what else the worker says of itself
}

func (v value) encode() ([]byte, error) { return json.Marshal(v) }

// parse returns what a cell holds, the zero value if it is not a lease.
func parse(cell store.Cell) value {
	var v value
	if json.Unmarshal(cell.Value, &v) != nil {
		return value{}
	}
	return v
}

// patience returns how long a watcher waits for the cell to move.
func (v value) patience() time.Duration {
	if v.TTL <= 0 || v.TTL > MaxTTL.Microseconds() {
		return MaxTTL
	}
	return time.Duration(v.TTL) * time.Microsecond
}

// hopeless reports whether a call that answered err would do so again.
func hopeless(err error) bool {
	for _, e := range []error{store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrKey, store.ErrNewer, store.ErrPoisoned} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
