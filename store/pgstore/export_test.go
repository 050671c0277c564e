package pgstore

import (
	"testing"
	"time"
)

// StopPolling keeps handles that listen from looking for what nobody told them.
// It comes before they are opened.
func StopPolling(t *testing.T) {
	calm := calmInterval
	calmInterval = time.Hour
	t.Cleanup(func() { calmInterval = calm }) // after they are closed
}
