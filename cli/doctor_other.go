//go:build !linux && !darwin

package cli

import "errors"

// freeSpace does not know.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }
