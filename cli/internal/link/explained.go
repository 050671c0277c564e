package link

import (
	"errors"

	"github.com/perdure/perdure/store"
)

// explained adds to an error of a store that opens and does not answer what the store
// knows about that, such as who is missing of a cluster.
func explained(s store.Store, err error) error {
	if d, ok := store.As[interface{ Detail() string }](s); ok && errors.Is(err, store.ErrUnavailable) && d.Detail() != "" {
		return &explanation{err, d.Detail()}
	}
	return err
}

type explanation struct {
	error
	detail string
}

func (e *explanation) Unwrap() error { return e.error }

func (e *explanation) Error() string { return e.detail + ": " + e.error.Error() }

// Detail is what a server that waits for the store tells those who ask.
func (e *explanation) Detail() string { return e.detail }
