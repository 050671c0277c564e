package kit

import (
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/perdure/perdure/store/faulty"
)

// SweepCalls is faulty.SweepCalls over every step-th call only, for short forms.
func SweepCalls(step int, faults ...faulty.Fault) iter.Seq2[string, faulty.Plan] {
	return sweep("call", func(c faulty.Call) int { return c.N }, step, faults)
}

// SweepWrites is faulty.Sweep over every step-th write only.
func SweepWrites(step int, faults ...faulty.Fault) iter.Seq2[string, faulty.Plan] {
	return sweep("write", func(c faulty.Call) int { return c.W }, step, faults)
}

func sweep(what string, number func(faulty.Call) int, step int, faults []faulty.Fault) iter.Seq2[string, faulty.Plan] {
	return func(yield func(string, faulty.Plan) bool) {
		for n := 1; ; n += step {
			var reached atomic.Bool
			for _, f := range faults {
				plan := func(c faulty.Call) faulty.Fault {
					if number(c) != n {
						return faulty.None
					}
					reached.Store(true)
					return f
				}
				if !yield(fmt.Sprintf("%s at %s %d", f, what, n), plan) {
					return
				}
			}
			if !reached.Load() {
				return
			}
		}
	}
}
