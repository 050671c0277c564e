package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/perdure/perdure/store"
)

// shelf is a folder of files, one for each name, spread over 256 folders so
// that none grows large.
type shelf struct {
	e      *engine
	root   string
	ext    string
	shards [256]struct {
		mu    sync.Mutex
		ready bool // made, and synced since the engine started
	}
	index index
}

func (s *shelf) shard(n byte) string { return filepath.Join(s.root, fmt.Sprintf("%02x", n)) }

func (s *shelf) path(p place) string { return filepath.Join(s.shard(p.shard), p.base+s.ext) }

// settle makes a shard ready for use. The first use syncs it, because a killed
// process may have left files in it that would lose their name in a power failure;
// what has been read must not vanish.
func (s *shelf) settle(n byte, create bool) error {
	shard := &s.shards[n]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.ready || s.e.failed.Load() != nil {
		return nil
	}
	dir := s.shard(n)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil
		}
		err := s.e.disk.mkdir(dir)
		if err == nil {
			err = s.e.disk.syncDir(s.root)
		}
		if err != nil {
			return s.e.poison(err, "creating folder %s", dir)
		}
	} else if err != nil {
		return fmt.Errorf("filestore: %w; check the folder's permissions", err)
	}
	if err := s.e.disk.syncDir(dir); err != nil {
		return s.e.poison(err, "syncing folder %s", dir)
	}
	shard.ready = true
	return nil
}

// maxTop exceeds the longest beginning of a file up to the end of its name: six
// bytes for each byte of the name, and what precedes it.
const maxTop = 6*store.MaxName + 256

// scan returns the names of all files, and the errors of those whose name cannot
// be read. Gone reports whether a file is the tombstone of its name.
func (s *shelf) scan(field string, gone func(base string, top []byte) bool) (names []string, damaged map[string]error, err error) {
	dirs, err := os.ReadDir(s.root)
	if err != nil {
		return nil, nil, err
	}
	damaged = map[string]error{}
	for _, dir := range dirs {
		n, err := strconv.ParseUint(dir.Name(), 16, 8)
		if err != nil || dir.Name() != filepath.Base(s.shard(byte(n))) {
			continue // not one of ours
		}
		if err := s.settle(byte(n), false); err != nil {
			return nil, nil, err
		}
		files, err := os.ReadDir(s.shard(byte(n)))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			base, ours := strings.CutSuffix(file.Name(), s.ext)
			if !ours {
				continue
			}
			path := filepath.Join(s.shard(byte(n)), file.Name())
			top, err := topOf(path, maxTop)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue // deleted meanwhile
			case tooMany(err):
				return nil, nil, err
			case err != nil: // of this file alone
				damaged[path] = fmt.Errorf("filestore: %w; check the file and the disk", err)
				continue
			}
			name, ok := cutName(top, field)
			switch {
			case ok && s.path(placeOf(name)) == path:
				names = append(names, name)
			case !gone(base, top):
				damaged[path] = &store.CorruptError{Where: path, Reason: "the first line does not hold the name that the file is for"}
			}
		}
	}
	return names, damaged, nil
}

// topOf returns up to limit bytes of the beginning of a file.
func topOf(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
