package perdure

import "time"

// clock is the wall clock: what entries, timers and hints are dated by. It may
// jump. What must not depend on that is measured on the monotonic clock.
var clock = time.Now

// wall returns the time of the wall clock in Unix microseconds.
func wall() int64 { return clock().UnixMicro() }

// until returns how long it takes by the wall clock until a time in Unix
// microseconds.
func until(due int64) time.Duration { return time.UnixMicro(due).Sub(clock()) }

// alarm returns a channel that is ready at a time in Unix microseconds, and what
// ends the wait. There is no timer for a time that is over: such ones fire at
// once in each goroutine, which the race detector of Go 1.26 does not survive
// when tests have virtual time.
func alarm(due int64) (<-chan time.Time, func()) {
	if d := until(due); d > 0 {
		t := time.NewTimer(d)
		return t.C, func() { t.Stop() }
	}
	over := make(chan time.Time, 1)
	over <- clock()
	return over, func() {}
}
