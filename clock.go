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
