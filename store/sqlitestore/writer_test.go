package sqlitestore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestGiveWay says when a handle lets others write first, and for how long.
func TestGiveWay(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	closing := make(chan struct{})
	close(closing)
	for name, test := range map[string]struct {
		met, written time.Duration // how long ago
		ctx          context.Context
		closing      chan struct{}
		want         time.Duration
	}{
		"nobody was met":             {met: metLately + 1, want: 0},
		"after a commit":             {met: metLately, want: wayTime},
		"some time after it":         {written: wayTime / 3, want: wayTime - wayTime/3},
		"long after it":              {written: wayTime, want: 0},
		"for a request that ended":   {ctx: ended, want: 0},
		"in a store that is closing": {closing: closing, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.ctx == nil {
					test.ctx = context.Background()
				}
				start := time.Now()
				w := newWriter(&Store{closing: test.closing}, nil)
				w.met, w.written = start.Add(-test.met), start.Add(-test.written)
				w.giveWay(test.ctx)
				if waited := time.Since(start); waited != test.want {
					t.Errorf("giveWay waits for %v of the test's clock, want %v", waited, test.want)
				}
			})
		})
	}
}
