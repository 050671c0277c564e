// Package faulty wraps a store and makes its calls fail at will. It is for testing
// what a program does when a write is lost, when only its result is lost, when the
// store is slow, or when the process dies between two writes.
//
// A [Plan] sees each call before it happens and chooses a [Fault] for it. The
// simplest is one fault at one place:
//
//	s := faulty.New(inner, faulty.AtWrite(3, faulty.FailAfter))
//
// A crash sweep cuts off a program at every write it makes, once before the write
// and once after it, and runs it again on what is left:
//
//	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
//		inner := memstore.New()
//		_ = program(faulty.New(inner, plan)) // dies at the cut
//		if err := program(inner); err != nil {
//			t.Errorf("%s: %v", cut, err)
//		}
//	}
//
// The sweep ends by itself when the program no longer reaches the cut.
//
// Calls are Append, Read, Journals, Drop, Get, Put, Delete and List; a read
// counts when its loop starts, and a batch of store.Batcher is one Append. Close
// never fails and always reaches the store inside, as the system closes the
// handles of a dead process. Other upgrades, such as wake-ups, are those of the
// store inside and do not fail.
package faulty
