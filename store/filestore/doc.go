// Package filestore keeps a store in a folder of human-readable files: a file of
// JSON lines for each journal, and a small JSON file for each cell.
//
//	s, err := filestore.Open(ctx, "data", filestore.Options{})
//	s, err := store.Open(ctx, "file:data")         // the same, by URL
//	s, err := store.Open(ctx, "file:///srv/data")  // an absolute path
//
// It suits one process with moderate traffic, data that you want to inspect with
// cat, grep and jq, and backups by copying the folder of a closed store, or with
// [Store.Backup] while it is open. A folder belongs to one process at a time; handles
// within the process share it, and other processes get store.ErrLocked. Keep it on a
// local disk: network file systems differ in what their locks and syncs are worth.
// Each journal that was used takes about half a kilobyte of memory until the last
// handle is closed.
//
// Only the owner may access the files and folders of a store. In a folder without
// a sticky bit to which everyone may write, no new store is created unless
// [Options.SharedFolder] or ?shared-folder at the end of the URL allows it.
//
// # The folder
//
//	FORMAT                      what this folder is, and its format
//	LOCK                        locked while open; holds the process's id; never remove it
//	journals/18/NAME-HASH.jsonl one journal, or the tombstone of a dropped one
//	cells/a1/NAME-HASH.json     one cell
//	tmp/                        files being written; emptied at open
//
// A file's name consists of a readable part of the journal's or cell's name and
// 128 bits of that name's SHA-256, so that no name collides with another or
// escapes from the folder. Every line ends with a checksum (CRC-32C, bound to the
// name) of everything before it. An entry or value that is valid JSON on one line
// is stored byte for byte under "data"; any other is stored in base64 under
// "base64". A journal looks like this:
//
//	{"perdure":"journal","format":1,"name":"greeting","crc":"bdb31bcb"}
//	{"head":                   3,"end":                 413,"crc":"ad97d950"}
//	{"head":                   1,"end":                 282,"crc":"413c9712"}
//	{"seq":1,"part":1,"of":1,"data":{"say":"hello"},"crc":"b2df1bc5"}
//	{"seq":2,"part":1,"of":2,"data":{"say":"how are you"},"crc":"c3d8423f"}
//	{"seq":3,"part":2,"of":2,"base64":"AAH/","crc":"d8ad200a"}
//
// Part and of show which entries belong to one append. The head lines, written in
// turn so that one is always whole, say how far the file is known to be synced. To
// see only the entries: jq -c 'select(.seq)'.
//
// # What is kept
//
// An append is written and synced before it is acknowledged, and its head line
// after that; new files are synced before they get their name, and the folder
// after. So acknowledged writes survive a power failure, provided that the disk
// honours a sync. With Options.NoSync, with a folder in memory (tmpfs), and on
// Windows, where folders cannot be synced, the durability is store.Process.
//
// When a journal is first used, all its lines are verified. Damage before the
// head's position is a *store.CorruptError: the entries before the damage can be
// read, and nothing can be appended. After that position, complete appends are
// kept, and a torn last one, which was never acknowledged, is cut off. A journal
// or cell whose whole file is missing cannot be distinguished from one that never
// existed.
//
// A failed write or sync poisons the handles on the folder: see
// store.ErrPoisoned. A handle opened afterwards starts over from the files.
package filestore
