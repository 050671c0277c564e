//go:build darwin || freebsd || linux || netbsd || openbsd

package seal_test

import "github.com/perdure/perdure/examples/driver"

func init() { drivers["examples/driver"] = driver.Open }
