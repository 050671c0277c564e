package faulty

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Plan chooses the fault for a call. A store asks its plan about one call at a
// time; the plan must not call the store. A nil Plan injects no faults.
type Plan func(Call) Fault

// At plans a fault for the n-th call.
func At(n int, f Fault) Plan {
	return func(c Call) Fault {
		if c.N == n {
			return f
		}
		return None
	}
}

// AtWrite plans a fault for the n-th write.
func AtWrite(n int, f Fault) Plan {
	return func(c Call) Fault {
		if c.W == n && n > 0 {
			return f
		}
		return None
	}
}

// Rate is a fault and its probability P at each call.
type Rate struct {
	Fault Fault
	P     float64
}

// Random plans faults at random: each call has at most one of them, with the
// probability given by its rate. The same seed gives the same faults to the same
// sequence of calls.
func Random(seed uint64, rates ...Rate) Plan {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(Call) Fault {
		mu.Lock()
		x := random.Float64()
		mu.Unlock()
		for _, r := range rates {
			if x -= r.P; x < 0 {
				return r.Fault
			}
		}
		return None
	}
}

// Sweep yields a plan for each write of a program and each of the faults, with a
// name that says where the cut is, until the program no longer reaches the write.
// The body of the loop runs the program once with the plan, on a store of its own.
func Sweep(faults ...Fault) iter.Seq2[string, Plan] {
	return sweep("write", AtWrite, faults)
}

// SweepCalls is Sweep over all calls instead of only the writes.
func SweepCalls(faults ...Fault) iter.Seq2[string, Plan] {
	return sweep("call", At, faults)
}

func sweep(what string, at func(int, Fault) Plan, faults []Fault) iter.Seq2[string, Plan] {
	return func(yield func(string, Plan) bool) {
		for n := 1; ; n++ {
			var reached atomic.Bool
			for _, f := range faults {
				plan := at(n, f)
				watched := func(c Call) Fault {
					chosen := plan(c)
					if chosen != None {
						reached.Store(true)
					}
					return chosen
				}
				if !yield(fmt.Sprintf("%s at %s %d", f, what, n), watched) {
					return
				}
			}
			if !reached.Load() {
				return
			}
		}
	}
}
