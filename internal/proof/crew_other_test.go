//go:build darwin || freebsd || netbsd || openbsd

package proof_test

import "errors"

const memoryIsLimited = false

func limitMemory(uint64) error { return errors.ErrUnsupported }
