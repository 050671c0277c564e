// Package kit is what the tests of the kernel's rooms share: runtimes with a
// worker, waiting in virtual time, small flows, counters, and processes that
// die. Only tests import it; it may import the kernel and the stores.
package kit

import (
	"time"

	"github.com/perdure/perdure/internal/upkeep"
)

// No test but those of the sweep itself is to be saved by it: a lost hint must
// be seen.
func init() { upkeep.SetSweepInterval(100 * 365 * 24 * time.Hour) }
