package pgstore

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

// Failed returns the error of a call that failed with err.
func Failed(err error) error { return (&Store{life: context.Background()}).failed("open", err) }

// RefusedCommit reports whether a commit has certainly not happened.
var RefusedCommit = refusedCommit

// TooOld makes every server too old until the test ends.
func TooOld(t *testing.T) {
	before := minVersion
	minVersion = 990000
	t.Cleanup(func() { minVersion = before })
}

// Unheard reports whether the handle has seen that nobody listens.
func Unheard(s *Store) bool { return s.news.unheard() }

// LookOnce makes handles look only once whether anyone listens, until the test ends.
func LookOnce(t *testing.T) {
	before := presencePace
	presencePace = time.Hour
	t.Cleanup(func() { presencePace = before })
}

// SettledAfter returns after what time a handle that listens polls rarely.
func SettledAfter() time.Duration { return 2*presencePace + 2*newInterval }
