//go:build !unix

package pgtest

import "os/exec"

func asUser(*exec.Cmd, string) error { return errMissing }
