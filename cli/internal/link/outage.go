package link

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/safe"
)

// outage is how long a store takes no writes before the person is told. Commands that do
// not wait have failed by then, and said why.
const outage = 5 * time.Second

// tellOutage tells the person, where there is no log, why a command waits.
func (c *Connector) tellOutage() func(error) {
	var told atomic.Bool
	var wait *time.Timer
	return func(err error) {
		switch {
		case err != nil:
			wait = time.AfterFunc(outage, func() {
				told.Store(true)
				c.Hint("the store takes no writes, and runs wait until it does; Ctrl-C ends that: %s", safe.Line(err.Error()))
			})
		case !wait.Stop() && told.Swap(false):
			c.Hint("the store takes writes again")
		}
	}
}
