package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/upkeep"
)

// No test but those of the sweep itself is to be saved by it: a lost hint must
// be seen.
func init() { upkeep.SetSweepInterval(100 * 365 * 24 * time.Hour) }
