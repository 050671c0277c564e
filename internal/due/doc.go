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
// A reader takes a hint by [Page] or [Get], reads the thread's journal, does
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
//
// # Owners
//
// The last bytes of a thread's name say whom it belongs to, see [Owner], and
// the key of its hint is due/<flow>/<owner>/<thread>. A reader that goes through
// the pages of a flow meets the threads of one owner together, and goes on
// behind them with [NextOwner] when that owner has had its turn.
//
// # Alarms
//
// A thread whose next timer is more than [Near] away has no hint but an alarm:
// a cell alarm/<flow>/<time>/<thread>, ordered by time. What sleeps long costs
// nothing to a scan of the hints. [Ring] goes through the alarms whose time has
// come and makes a hint of each. Who looks for due work of a flow rings at
// least every Near, and when the first alarm is due.
//
// Settle sets the alarm before it removes the hint, and Ring writes the hint
// before it removes the alarm, so a crash between the two leaves both, which is
// a look too many and never one too few. The two can also meet, where a reader
// is slow or clocks differ: a reader is about to exchange a hint for an alarm
// whose time has come for another. Then each relies on what the other removes.
// So both always write, also where all is there already: Settle the alarm,
// Ring the hint; and both remove by the version they have seen. If the alarm
// is set after Ring saw it, Ring does not remove it. If it is set before, the
// hint is written after that, and is either behind the reader's removal or
// makes it fail.
//
// So at every moment, for every timer in a journal that a reader has folded,
// there is a hint that is due by then, or an alarm. Alarms hold no more than
// their key, and those of a timer that is no more cost one look.
package due
