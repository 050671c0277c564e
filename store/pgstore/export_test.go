package pgstore

import (
	"context"
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

// Failed is the error of a call that met err.
func Failed(err error) error { return (&Store{life: context.Background()}).failed("open", err) }
