package natsstore

import (
	"testing"
	"time"
)

// StopPolling makes handles that are opened from now on rely on news, until the test
// ends.
func StopPolling(t *testing.T) {
	old := pollPace
	pollPace = time.Hour
	t.Cleanup(func() { pollPace = old })
}
