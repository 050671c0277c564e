package sqlitestore

import (
	"encoding/binary"

	"github.com/ncruces/go-sqlite3/vfs"
)

// walFile is a WAL. It grows in pieces, because a sync that has to record a
// new length takes at least twice as long. And it writes the frames of a commit
// together, where SQLite writes the head and the page of each.
type walFile struct {
	file
	size   int64  // of the file, as far as is known
	end    int64  // of the last write
	held   []byte // frames that follow end and are not written yet
	commit bool   // held ends with a frame of a commit
	gather bool   // hold more than one frame
}

const (
	walPiece  = 256 << 10 // what a WAL grows by: some 25 appends
	mostHeld  = walPiece
	frameHead = 24 // the size of a frame's head
)

// frames returns how many there are, whoever wrote them, up to the last write.
func (f *walFile) frames() int { return int(f.end / (frameHead + pageSize)) }

// WriteAt implements vfs.File. It holds back the head of a frame that follows the
// last one until the page comes, in the next call. While a commit is gathered, it
// holds back frames until the one that ends it, which SQLite marks, since others
// may read them from then on.
func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if len(f.held) == 0 || off != f.end+int64(len(f.held)) {
		if err := f.flush(); err != nil {
			return 0, err
		}
		if len(p) != frameHead || off != f.end {
			return len(p), f.write(p, off)
		}
	}
	f.held = append(f.held, p...)
	if len(p) == frameHead {
		f.commit = binary.BigEndian.Uint32(p[4:]) != 0
		return len(p), nil
	}
	if f.gather && !f.commit && len(f.held) < mostHeld {
		return len(p), nil
	}
	return len(p), f.flush()
}

// flush writes what was held back.
func (f *walFile) flush() error {
	if len(f.held) == 0 {
		return nil
	}
	p := f.held
	f.held = p[:0]
	return f.write(p, f.end)
}

// write writes zeros after what makes the file longer. SQLite takes them for what
// it always expects after the last frame: remains of an earlier WAL, whose
// checksums are wrong. Nobody else's frames can be there, since only the holder
// of the database's write lock writes to a WAL.
func (f *walFile) write(p []byte, off int64) error {
	if off == 0 {
		f.size = 0 // another process may have truncated it
	}
	_, err := f.file.WriteAt(p, off)
	f.end = off + int64(len(p))
	if err != nil || f.end <= f.size {
		return err
	}
	if f.size, err = f.Size(); err == nil && f.size <= f.end {
		f.grow()
	}
	return err
}

var zeros [walPiece]byte

// grow extends the file beyond end, unless there is no room.
func (f *walFile) grow() {
	f.size = f.end - f.end%walPiece + walPiece
	if _, err := f.file.WriteAt(zeros[:f.size-f.end], f.end); err != nil {
		f.file.Truncate(f.end)
	}
}

// ReadAt implements vfs.File.
func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

// Sync implements vfs.File.
func (f *walFile) Sync(flags vfs.SyncFlag) error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.file.Sync(flags)
}

// Truncate implements vfs.File.
func (f *walFile) Truncate(size int64) error {
	f.size, f.held = 0, f.held[:0]
	return f.file.Truncate(size)
}
