package store

import "context"

// Backuper is the upgrade of stores in local files that can copy themselves while they
// are in use.
type Backuper interface {
	// Backup writes a copy of the store into dir, an empty folder, and returns
	// the URL of the copy relative to it, such as "sqlite:store.db".
	//
	// The copy is the store at one moment after the call begins: it holds every
	// write that was acknowledged before the call and, with any other write, all
	// those that were acknowledged before that one began. It holds no part of an
	// append, batch or value without the rest. It is synced. Reads and writes
	// continue meanwhile.
	//
	// After an error, dir holds nothing of use, and the store is unharmed, even if
	// the disk of dir is full: then the error matches ErrFull. A store that makes
	// one backup at a time returns ErrBackup while another is in progress.
	Backup(ctx context.Context, dir string) (url string, err error)
}
