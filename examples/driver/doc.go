// Package driver is a complete store driver, to learn from and to copy. All its
// code is in driver.go:
//
//	s, err := driver.Open(ctx, "folder")
//	s, err := store.Open(ctx, "log:folder") // the same, by URL
//
// A store is one log file in a folder. Each write adds a line to it, of JSON
// behind its checksum, and a handle keeps in memory what the lines amount to.
// How that meets the clauses of package store:
//
//   - Compare and swap: each call takes the lock of the file, reads the lines
//     that others added, decides, and adds its own. The lock is the system's,
//     which frees it when a process dies, however it dies. So any number of
//     handles and processes can share a log.
//   - All or none: one append is one line. A line without an end is of a writer
//     that died; it was never acknowledged, and whoever comes next removes it.
//   - Durability: a write is acknowledged when the file is synced, and the file
//     is not used before its folder is synced.
//   - Damage: any other line that is not as it was written is ErrCorrupt.
//   - Poisoning: after a failed write or sync no one knows what the disk holds,
//     so the handle neither writes nor reads any more. Whoever opens the log
//     again finds out.
//   - Any bytes: names and entries are []byte in the JSON, which makes them
//     base64. Strings would not do, since JSON has Unicode only.
//   - Versions are the place in the log where the line of a cell ends. The log
//     only grows, so none comes again.
//
// On purpose it leaves out compaction: dropped and overwritten bytes stay in
// the log, and all that is live is in memory. A damaged line makes the whole
// store unreadable, not one journal, and a log that was cut short looks like
// one whose last write was interrupted. A call waits for the lock even when its
// context ends. A real driver does better there.
//
// It has no upgrade but store.Durable. Package store polls for those who watch.
package driver
