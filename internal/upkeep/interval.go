package upkeep

import "time"

// SweepInterval is how long after a sweep the next one comes.
const SweepInterval = 10 * time.Minute

var sweepInterval = SweepInterval

// SetSweepInterval changes the interval of sweeps that begin from now on, until
// undo is called. It is for tests.
func SetSweepInterval(d time.Duration) (undo func()) {
	old := sweepInterval
	sweepInterval = d
	return func() { sweepInterval = old }
}
