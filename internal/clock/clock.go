// Package clock is the wall clock that entries, timers and hints are dated by.
// It imports only the standard library.
//
// The wall clock may jump. Whatever must not depend on that is measured on the
// monotonic clock, with package time.
package clock

import "time"

// Now returns the time of the wall clock. Tests replace it with Set.
func Now() time.Time { return now() }

var now = time.Now

// Set replaces the wall clock until undo is called.
func Set(f func() time.Time) (undo func()) {
	old := now
	now = f
	return func() { now = old }
}

// Micros returns the time of the wall clock in Unix microseconds.
func Micros() int64 { return now().UnixMicro() }

// Until returns how long the wall clock takes to reach a time in Unix
// microseconds.
func Until(due int64) time.Duration { return time.UnixMicro(due).Sub(now()) }

// Alarm returns a channel that is ready at a time in Unix microseconds, and a
// function that ends the wait. A time in the past gets no timer: the race
// detector of Go 1.26 does not survive timers that fire at once in many
// goroutines under virtual time.
func Alarm(due int64) (<-chan time.Time, func()) {
	if d := Until(due); d > 0 {
		t := time.NewTimer(d)
		return t.C, func() { t.Stop() }
	}
	past := make(chan time.Time, 1)
	past <- now()
	return past, func() {}
}

// Stamp returns the time of Unix microseconds, the zero time for 0.
func Stamp(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
