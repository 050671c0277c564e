// Package bell rings after a while.
package bell

import "time"

// A Bell rings on C when its time is over, once for each time that it is set.
// It is a time.Timer for loops that do other work between their waits. A timer
// with a channel runs in whichever goroutine next looks at the channel, if its
// time came while nobody did, and one that is over when it is set runs in the
// goroutine that sets it. The race detector of Go 1.26 does not survive two of
// them at once in a test with virtual time (golang.org/issue/78156).
type Bell struct {
	C     <-chan struct{}
	rings chan struct{}
	timer *time.Timer
}

// New returns a bell that rings after d.
func New(d time.Duration) *Bell {
	rings := make(chan struct{}, 1)
	b := &Bell{C: rings, rings: rings}
	b.timer = time.AfterFunc(time.Hour, b.ring)
	b.Reset(d)
	return b
}

func (b *Bell) ring() {
	select {
	case b.rings <- struct{}{}:
	default:
	}
}

// Reset sets the bell to ring after d from now, and forgets a ring that nobody
// heard. One that is under way may still come early.
func (b *Bell) Reset(d time.Duration) {
	b.timer.Stop()
	select {
	case <-b.rings:
	default:
	}
	if d <= 0 { // a timer would run in this goroutine, see Bell
		b.ring()
		return
	}
	b.timer.Reset(d)
}

// Stop keeps the bell from ringing.
func (b *Bell) Stop() { b.timer.Stop() }
