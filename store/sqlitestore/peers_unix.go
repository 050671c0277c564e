//go:build unix

package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// maxSocketPath is the longest path of a socket on all systems.
const maxSocketPath = 100

// shortPath returns a short path of a file in a folder that is open. Where the
// system has no such thing, it is none.
func shortPath(folder *os.File, name string) string {
	if runtime.GOOS != "linux" {
		return ""
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)
}

// makePeerFolder makes the folder of the sockets, unless there is one.
func makePeerFolder(folder, file string) error {
	err := os.Mkdir(folder, 0o700)
	if err == nil {
		err = likeDatabase(folder, file, 0o111)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// openPeerFolder opens the folder of the sockets. Only those may enter it who may
// read and write the database. They could write into that what they like, so they
// are believed here too. A folder that someone else has made, or that others may
// enter, is not used.
func openPeerFolder(folder, file string) (*os.File, error) {
	found, err := os.Lstat(folder)
	if err != nil {
		return nil, err
	}
	database, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !found.IsDir() || !madeByWriter(folder, found.Sys().(*syscall.Stat_t), database) {
		return nil, fmt.Errorf("sqlitestore: %s belongs to another user: %w", folder, fs.ErrPermission)
	}
	if found.Mode().Perm()&^writersOf(database, found, 0o111) != 0 {
		return nil, fmt.Errorf("sqlitestore: users who may not write to the database may enter %s: %w", folder, fs.ErrPermission)
	}
	return os.Open(folder)
}

// madeByWriter reports whether the one who made the folder may write the database:
// its owner, this process, or someone in its group. Only they can give a folder to
// the group, unless its own folder gives to that group what anyone makes there.
func madeByWriter(folder string, found *syscall.Stat_t, database fs.FileInfo) bool {
	of := database.Sys().(*syscall.Stat_t)
	if found.Uid == of.Uid || found.Uid == uint32(os.Geteuid()) {
		return true
	}
	around, err := os.Stat(filepath.Dir(folder))
	return err == nil && around.Mode()&0o002 == 0 && database.Mode()&0o060 == 0o060 && found.Gid == of.Gid
}

// likeDatabase lets those use a new file beside the database who may read and
// write that. More are further bits for them, as a folder needs.
func likeDatabase(path, file string, more fs.FileMode) error {
	database, err := os.Stat(file)
	if err != nil {
		return err
	}
	want := database.Sys().(*syscall.Stat_t)
	_ = os.Lchown(path, -1, int(want.Gid)) // whoever is in the group may
	_ = os.Lchown(path, int(want.Uid), -1) // root may
	found, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return os.Chmod(path, writersOf(database, found, more))
}

// writersOf returns the permissions by which those use a file who may read and
// write the database, and its owner.
func writersOf(database, file fs.FileInfo, more fs.FileMode) fs.FileMode {
	mode := 0o700 & (0o600 | more)
	if database.Mode()&0o060 == 0o060 && database.Sys().(*syscall.Stat_t).Gid == file.Sys().(*syscall.Stat_t).Gid {
		mode |= 0o070 & (0o060 | more)
	}
	if database.Mode()&0o006 == 0o006 {
		mode |= 0o007 & (0o006 | more)
	}
	return mode
}
