// Package due keeps hints of due work: cells that say which threads of a flow
// somebody has to look at, and when. A journal is the truth; a hint only makes
// it found without reading every journal.
//
// # The protocol
//
// A writer that is about to append a fact which makes a thread due calls
// [Announce] first, with the sequence that the fact will get, and appends only
// if that succeeded. If its append conflicts, it announces again with the new
// sequence. Announcements are merged: the sequence never falls and the due time
// is never postponed.
//
// A reader takes a hint by [List] or [Get], reads the thread's journal, does
// what is due, and calls [Settle] with the sequence up to which it has read
// and the time of the thread's next timer. Settle changes only the version of
// the hint that the reader saw, and only if the journal has reached the hint's
// sequence. Where it has not, a writer may be between its announcement and its
// append, and the hint stays. A reader that finds such a hint again and again,
// because its writer died, appends an entry of no meaning (a nudge): the
// journal then reaches the sequence, and a writer that was only slow conflicts
// and announces again.
//
// So at every moment, for every fact in a journal that no reader has folded,
// there is a hint with at least its sequence. What is in a hint without a fact
// costs one look at a journal.
package due
