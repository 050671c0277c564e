// Package filestore keeps a store in a folder of files that a person can
// read: JSON lines, one file a journal, and one small JSON file a cell.
//
//	s, err := filestore.Open(ctx, "data", filestore.Options{})
//	s, err := store.Open(ctx, "file:data")         // the same, by URL
//	s, err := store.Open(ctx, "file:///srv/data")  // an absolute path
//
// It suits one process with moderate traffic, work that one wants to look
// into with cat, grep and jq, and backups by copying the folder of a closed
// store. A folder belongs to one process at a time; handles within the
// process share it, another process gets store.ErrLocked. Keep it on a local
// disk: network file systems differ in what their locks and syncs are worth.
// Each journal that was touched takes about half a kilobyte of memory until
// the last handle is closed.
//
// Files and folders that the store makes are its owner's only. In a folder to
// which everyone may write, and that has no sticky bit, no new store is made
// unless [Options.SharedFolder] or ?shared-folder at the end of the URL says so.
//
// # The folder
//
//	FORMAT                      what this folder is, and in which format
//	LOCK                        locked while open; holds the process's id; never to be removed
//	journals/18/NAME-HASH.jsonl one journal, or the tombstone of a dropped one
//	cells/a1/NAME-HASH.json     one cell
//	tmp/                        files in the making; emptied at open
//
// File names are made of a readable piece of the name and 128 bits of its
// SHA-256, so that no name collides with another or leaves the folder. Every
// line ends with a checksum (CRC-32C, bound to the name) of all that is
// before it. An entry or value that is valid JSON on one line stands there
// byte for byte under "data"; any other stands in base64 under "base64". A
// journal looks like this:
//
//	{"perdure":"journal","format":1,"name":"greeting","crc":"bdb31bcb"}
//	{"head":                   3,"end":                 413,"crc":"ad97d950"}
//	{"head":                   1,"end":                 282,"crc":"413c9712"}
//	{"seq":1,"part":1,"of":1,"data":{"say":"hello"},"crc":"b2df1bc5"}
//	{"seq":2,"part":1,"of":2,"data":{"say":"how are you"},"crc":"c3d8423f"}
//	{"seq":3,"part":2,"of":2,"base64":"AAH/","crc":"d8ad200a"}
//
// Part and of tell which entries came in one append. The head lines, written
// in turn so that one is always whole, say up to where the file is known to
// be synced. To see the entries alone: jq -c 'select(.seq)'.
//
// # What is kept
//
// An append is written and synced before it is acknowledged, and its head
// line after that; new files are synced before they get their name, and the
// folder after. So acknowledged writes survive a power failure, where the disk
// does what a sync asks. Options.NoSync, a folder in memory (tmpfs), and
// Windows, where folders cannot be synced, give store.Process.
//
// When a journal is first touched, all its lines are verified. Damage up to
// the head is a *store.CorruptError: the entries before it can be read,
// nothing can be appended. Behind the head, whole appends are kept, and a
// torn last one, which nobody was told of, is cut off. A journal or cell
// whose whole file is missing cannot be told from one that never was.
//
// A failed write or sync poisons the handles on the folder, see
// store.ErrPoisoned. A handle opened afterwards starts over from the files.
package filestore
