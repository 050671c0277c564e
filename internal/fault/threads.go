package fault

import (
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

// PinnedError names the forks and children that keep a thread from being
// erased. It matches ErrPinned.
type PinnedError struct {
	Thread string
	By     []string // ids of threads
}

// Error names them.
func (e *PinnedError) Error() string {
	return fmt.Sprintf("%v: thread %s by %s", ErrPinned, e.Thread, strings.Join(e.By, ", "))
}

// Unwrap makes errors.Is(err, ErrPinned) true.
func (e *PinnedError) Unwrap() error { return ErrPinned }

// ErasedError says that a thread was erased. It matches ErrErased, and
// ErrNoThread for those who do not care why there is none.
type ErasedError struct {
	Thread string // id or name
	Err    error  // of the store, if it was that which told
}

func (e *ErasedError) Error() string { return fmt.Sprintf("%v: %s", ErrErased, e.Thread) }

func (e *ErasedError) Unwrap() []error { return []error{ErrErased, ErrNoThread, e.Err} }

// IfDropped makes ErrErased of the answer of a journal that was dropped.
func IfDropped(name string, err error) error {
	if errors.Is(err, store.ErrDropped) && !errors.Is(err, ErrErased) {
		return &ErasedError{Thread: name, Err: err}
	}
	return err
}

// BusyError says which run keeps a thread busy. It matches ErrBusy.
type BusyError struct{ Thread, Run string }

// Error names the run.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: thread %s has run %s", ErrBusy, e.Thread, e.Run)
}

// Unwrap makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Unwrap() error { return ErrBusy }
