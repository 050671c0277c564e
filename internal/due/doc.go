// Package due keeps hints of due work: cells that say which threads of a flow
// need attention, and when. The journal is the truth; hints only make due
// threads findable without reading every journal.
//
// # The protocol
//
// A writer that is about to append a fact that makes a thread due first calls
// [Announce] with the sequence that the fact will get, and appends only if that
// succeeded. If its append conflicts, it announces again with the new sequence.
// Announcements are merged: the sequence never falls and the due time is never
// postponed.
//
// A reader gets a hint from [Page] or [Get], reads the thread's journal, does
// what is due, and calls [Settle] with the sequence up to which it has read and
// the time of the thread's next timer. Settle changes only the version of the
// hint that the reader saw, and only if the journal has reached the hint's
// sequence. If it has not, a writer may be between its announcement and its
// append, and the hint stays. A reader that keeps finding such a hint, because
// its writer died, appends an entry without meaning (a nudge): the journal then
// reaches the sequence, and a writer that was merely slow gets a conflict and
// announces again.
//
// So at every moment, every fact in a journal that no reader has folded has a
// hint with at least its sequence. A hint without a fact costs one look at a
// journal.
//
// # Owners
//
// The last bytes of a thread's name identify its owner, see [Owner], and the
// key of its hint is due/<flow>/<owner>/<thread>. A reader that pages through a
// flow meets the threads of one owner together, and skips the rest of them with
// [NextOwner] when that owner has had its turn.
//
// # Alarms
//
// A thread whose next timer is more than [Near] away has an alarm instead of a
// hint: a cell alarm/<flow>/<time>/<thread>, ordered by time. So a scan of the
// hints does not see threads that sleep for long. [Ring] turns each alarm whose
// time has come into a hint. Workers that look for due work of a flow call it
// at least every Near, and when the first alarm is due.
//
// Settle sets the alarm before it removes the hint, and Ring writes the hint
// before it removes the alarm, so a crash in between leaves both, which costs
// one look too many, never one too few. The two can also meet, if a reader is
// slow or clocks differ: one reader is about to replace a hint with an alarm
// whose time, for another, has already come. Then each relies on what the other
// removes. So both always write, even if nothing changes: Settle the alarm,
// Ring the hint; and both remove only the version they have seen. If the alarm
// is set after Ring saw it, Ring does not remove it. If it is set before, Ring
// writes the hint later, either after the reader has removed it or so that the
// removal fails.
//
// So at every moment, every timer in a journal that a reader has folded has an
// alarm, or a hint that is due by then. An alarm holds nothing but its key, and
// one whose timer is gone costs one look.
package due
