//go:build darwin || freebsd || netbsd || openbsd

package perdure_test

import "errors"

const memoryIsLimited = false

func limitMemory(uint64) error { return errors.ErrUnsupported }
