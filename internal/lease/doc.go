// Package lease tells live workers from dead ones. A worker holds one lease: a
// cell that it keeps rewriting, each time with a higher counter. Others watch
// the cell; if it does not change for the time written in it, its worker is
// dead.
//
// Clocks need not agree, since no point in time is ever written down. The
// holder measures on its own monotonic clock from the moment before it sent a
// renewal, and trusts its lease for three quarters of the ttl. A watcher
// measures on its own monotonic clock from the moment after it first saw the
// cell in its current state, and waits for the whole ttl. The quarter in
// between allows for clocks that run at different speeds.
//
// Renewals need not survive a power failure, which ends holders too, so they
// are not synced if the store can do that (store.Unsynced). The first write and
// the removal are synced: whoever claimed work had a lease, and a buried worker
// stays buried. A cell that a power failure sets back to an older renewal
// counts as changed; a holder elsewhere that outlived the failure finds its
// lease lost.
//
// # Taking over
//
//	dead, retryIn, err := w.Dead(ctx, id)
//	if dead {
//		err = w.Bury(ctx, id) // ErrAlive: it came back
//	}
//
// Dead is a judgement that a delayed renewal can still overturn. Bury is final:
// it removes the cell only if it is still the version that was judged. Once it
// has returned nil, the holder no longer trusts its lease, and none of its
// renewals can succeed.
//
// [Watcher.Roster] does both for all workers at once, and returns who is alive
// and who has gone since the last call.
//
// # Limits
//
// A lease decides who tries, not who wins: a worker can be paused for any
// length of time between checking Valid and acting on it. If the operating
// system stops the monotonic clock along with the machine (a suspended laptop
// or virtual machine), the holder does not see that time pass, and stays Valid
// for the rest of its share after it wakes. What must not happen twice is
// fenced by the journal's compare-and-swap.
package lease
