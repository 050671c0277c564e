package fault

import (
	"fmt"

	"github.com/perdure/perdure/internal/journal"
)

// StaleError says where a thread is that was to be at another sequence: see
// Note.IfSeq and the other fields of that name. It matches ErrStale.
type StaleError struct {
	Thread string
	Seq    uint64 // of its last entry; 0: there is no such thread
}

// Error names the sequence.
func (e *StaleError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("%v: there is no thread %s", ErrStale, e.Thread)
	}
	return fmt.Sprintf("%v: thread %s is at %d", ErrStale, e.Thread, e.Seq)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// CheckSeq returns an error if a thread is not at a sequence, 0 for any. A change is
// decided with it: what it then appends goes behind that very sequence or is
// decided again. It comes last, behind what would fail or do nothing anyway, but
// before anything is done outside the thread.
func CheckSeq(t *journal.Thread, id string, want uint64) error {
	if want == 0 || t.Seq == want {
		return nil
	}
	return &StaleError{Thread: id, Seq: t.Seq}
}
