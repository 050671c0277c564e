package bell_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/bell"
)

// TestRingsWhileNobodyListens has many goroutines find at one moment that their
// time came while they slept, which timers with channels do not survive under
// the race detector.
func TestRingsWhileNobodyListens(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					b := bell.New(time.Second)
					defer b.Stop()
					for range 50 {
						time.Sleep(2 * time.Second)
						select {
						case <-b.C:
						default:
							t.Error("it has not rung")
						}
						b.Reset(0)
						<-b.C
						b.Reset(time.Second)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, begin := bell.New(time.Second), time.Now()
		time.Sleep(time.Minute)
		b.Reset(time.Hour)
		<-b.C
		if took := time.Since(begin); took != time.Minute+time.Hour {
			t.Errorf("it rang after %v", took)
		}
		b.Reset(0)
		<-b.C
		b.Reset(time.Hour)
		b.Stop()
		time.Sleep(2 * time.Hour)
		select {
		case <-b.C:
			t.Error("it rang after Stop")
		default:
		}
	})
}
