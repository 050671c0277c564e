// Package lease tells living workers from dead ones. A worker holds one lease:
// a cell that it writes again and again, each time with a higher counter. Others
// watch the cell; one that stands still for the time written in it belongs to
// a dead worker.
//
// No two clocks have to agree, and no time is written down. The holder measures
// on its own monotonic clock from the moment before it sent a renewal, and
// believes in its lease for three quarters of the ttl. A watcher measures on
// its own monotonic clock from the moment after it first saw the cell as it is,
// and waits for the whole ttl. The quarter between is for clocks that run at
// different speeds.
//
// Renewals need not survive a power failure, which ends holders too, so they are
// put unsynced where the store can (store.Unsynced). The first write and the
// removal are synced: whoever claimed work had a lease, and stays buried. A cell
// that a power failure took back to an older renewal is one that moved; a holder
// that outlived it, elsewhere, finds its lease lost.
//
// # Taking over
//
//	dead, retryIn, err := w.Dead(ctx, id)
//	if dead {
//		err = w.Bury(ctx, id) // ErrAlive: it came back
//	}
//
// Dead is a judgement and can be overtaken by a renewal that was slow on its
// way. Bury is final: it removes the cell only if it is still the one that was
// judged. Once it has returned nil, the holder has stopped believing in its
// lease, and no renewal of it succeeds any more.
//
// [Watcher.Roster] does both for all workers at once, and says who is left and
// who went since it was last asked.
//
// # Limits
//
// A lease decides who tries, not who wins: a worker can be stopped between its
// look at Valid and what it does next, for any time. Where the operating system
// stops the monotonic clock with the machine (a suspended laptop or virtual
// machine), the holder does not see that time pass and is Valid for the rest
// of its share after it wakes. What must not happen twice is fenced by the
// journal's compare-and-swap.
package lease
