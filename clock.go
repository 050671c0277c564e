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

// timerTo returns a timer that fires at a time in Unix microseconds. It fires in
// the future, if only by a nanosecond: timers that are due already when they are
// waited for fire at once in each goroutine, which the race detector of Go 1.26
// does not survive in the virtual time of tests.
func timerTo(due int64) *time.Timer { return time.NewTimer(max(until(due), time.Nanosecond)) }
