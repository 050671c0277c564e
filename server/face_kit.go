package server

import (
	"errors"

	"github.com/perdure/perdure"
)

// firstError returns the first error that is one.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// gone reports whether a thread that was listed is no longer there.
func gone(err error) bool {
	return errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrErased)
}
