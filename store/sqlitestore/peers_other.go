//go:build !unix

package sqlitestore

import (
	"errors"
	"io/fs"
	"os"
)

const maxSocketPath = 0

func shortPath(*os.File, string) string { return "" }

// makePeerFolder has no way here to keep others from the sockets. So there are
// none, and handles find each other's writes by polling.
func makePeerFolder(string, string) error { return errors.ErrUnsupported }

func openPeerFolder(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func likeDatabase(string, string, fs.FileMode) error { return errors.ErrUnsupported }
