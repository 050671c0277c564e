package redisstore

import (
	"context"
	"testing"
	"time"
)

// StopPolling keeps handles that listen from polling too. Call it before they are
// opened.
func StopPolling(t *testing.T) {
	calm := calmInterval
	calmInterval = time.Hour
	t.Cleanup(func() { calmInterval = calm }) // after they are closed
}

// SettledAfter is after what time a handle that listens polls rarely.
const SettledAfter = 2*quietTime + 2*newInterval

// RewriteSoon lets drops ask for a rewrite at once. Call it before stores are opened.
func RewriteSoon(t *testing.T) {
	before := rewritePace
	rewritePace = time.Millisecond
	t.Cleanup(func() { rewritePace = before }) // after they are closed
}

// TooOld makes every server too old until the test ends.
func TooOld(t *testing.T) {
	before := minVersion
	minVersion = 99
	t.Cleanup(func() { minVersion = before })
}

// Failed returns the error of a call that failed with err.
func Failed(err error) error {
	s := &Store{life: context.Background(), keys: newKeys("test")}
	s.opened.Store(true)
	return s.failed("write to", err)
}
