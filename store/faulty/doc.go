// Package faulty wraps a store and makes its calls fail at will. It is for
// tests: of what a program does when a write is lost, when only its answer is
// lost, when the store is slow, or when the process dies between two writes.
//
// A [Plan] sees each call before it happens and chooses a [Fault] for it. The
// plain way is one fault at one place:
//
//	s := faulty.New(inner, faulty.AtWrite(3, faulty.FailAfter))
//
// A crash sweep cuts a program at every write it makes, once before the write
// and once behind it, and runs it again on what is left:
//
//	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
//		inner := memstore.New()
//		_ = program(faulty.New(inner, plan)) // dies at the cut
//		if err := program(inner); err != nil {
//			t.Errorf("%s: %v", cut, err)
//		}
//	}
//
// The sweep ends by itself when the program no longer gets as far as the cut.
//
// Calls are Append, Read, Journals, Drop, Get, Put, Delete and List; a read
// counts when its loop starts, and a batch of store.Batcher is one Append. Close is never failed and always reaches the
// store inside, as the handles of a dead process are closed by the system.
// Other upgrades, such as wake-ups, are those of the store inside and do not fail.
package faulty
