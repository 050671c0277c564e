package sqlitestore

import "github.com/ncruces/go-sqlite3/vfs"

// walFile is a WAL. It grows in pieces, because a sync that has to record a
// new length takes at least twice as long. And it writes a frame in one piece,
// where SQLite writes the head and then the page.
type walFile struct {
	file
	size  int64  // of the file, as far as is known
	end   int64  // of the last write
	frame []byte // the head of the frame at end, while its page is not written
}

const (
	walPiece  = 256 << 10 // what a WAL grows by: some 25 appends
	frameHead = 24        // the size of a frame's head
)

// WriteAt implements vfs.File. It holds back the head of a frame that follows the
// last one, until the next call, in which SQLite writes the page.
func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	if len(f.frame) > 0 && off == f.end+frameHead {
		f.frame = append(f.frame, p...)
		return len(p), f.flush()
	}
	if err := f.flush(); err != nil {
		return 0, err
	}
	if len(p) == frameHead && off == f.end {
		f.frame = append(f.frame, p...)
		return len(p), nil
	}
	return len(p), f.write(p, off)
}

// flush writes what was held back.
func (f *walFile) flush() error {
	if len(f.frame) == 0 {
		return nil
	}
	p := f.frame
	f.frame = p[:0]
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
	f.size, f.frame = 0, f.frame[:0]
	return f.file.Truncate(size)
}
