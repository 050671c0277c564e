package store

import "context"

// Backuper is the upgrade of stores in files of this machine that can copy
// themselves while they are in use.
type Backuper interface {
	// Backup writes a copy of the store into dir, an empty folder, and returns
	// the URL of the copy relative to it, such as "sqlite:store.db".
	//
	// The copy is the store at one moment after the call begins: it holds every
	// write that was acknowledged before the call and, with any other write, all
	// those that were acknowledged before that one began. No append, batch or
	// value is in it in part. It is synced. Reads and writes go on meanwhile.
	//
	// After an error, dir holds nothing of use, and the store is unharmed, also
	// if the disk of dir is full: the error matches ErrFull then. A store that
	// makes one backup at a time returns ErrBackup while it makes another.
	Backup(ctx context.Context, dir string) (url string, err error)
}
