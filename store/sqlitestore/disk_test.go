package sqlitestore_test

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// broken stands between SQLite and the file system of this test binary, so
// that a test can let the writes and syncs of one folder fail as a disk would.
var broken = struct {
	sync.Mutex
	failing map[string]failure // by folder or file
	syncs   map[string]int     // by file
	left    int                // if not 0, the process dies at the write or sync that makes it so
	full    bool               // instead, all writes fail from there on
}{failing: map[string]failure{}, syncs: map[string]int{}}

// failure is what writes and syncs answer, nil for what they do.
type failure struct{ write, sync error }

func init() {
	const name = "perdure"
	vfs.Register(name, brokenDisk{vfs.Find(name).(vfs.VFSFilename)})
}

// failDisk lets a file, or all in a folder, fail from now on, with the zero
// value no more.
func failDisk(path string, f failure) {
	broken.Lock()
	defer broken.Unlock()
	broken.failing[path] = f
}

// fullDisk lets all writes fail after some writes and syncs, for as long as fn runs.
func fullDisk(after int, fn func()) {
	set := func(full bool, left int) {
		broken.Lock()
		defer broken.Unlock()
		broken.full, broken.left = full, left
	}
	set(true, after)
	defer set(false, 0)
	fn()
}

// syncs returns how often a file was synced.
func syncs(file string) int {
	broken.Lock()
	defer broken.Unlock()
	return broken.syncs[file]
}

type brokenDisk struct{ vfs.VFSFilename }

func (d brokenDisk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	path := name.String()
	f, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	return brokenFile{f.(vfs.FileSharedMemory), path}, flags, nil
}

type brokenFile struct {
	vfs.FileSharedMemory
	path string
}

func (f brokenFile) Unwrap() vfs.File { return f.FileSharedMemory }

func (f brokenFile) fails() failure {
	broken.Lock()
	defer broken.Unlock()
	if broken.left--; broken.full && broken.left < 0 {
		return failure{write: sqlite3.FULL}
	} else if broken.left == 0 && !broken.full {
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		select {}
	}
	for path, how := range broken.failing {
		if f.path == path || filepath.Dir(f.path) == path {
			return how
		}
	}
	return failure{}
}

// panicking is a failure that the driver does not survive.
type panicking struct{ error }

func (f brokenFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fails().write; err != nil {
		if _, ok := err.(panicking); ok {
			panic("out of memory")
		}
		return 0, err
	}
	return f.FileSharedMemory.WriteAt(p, off)
}

func (f brokenFile) Truncate(size int64) error {
	if err := f.fails().write; err != nil {
		return err
	}
	return f.FileSharedMemory.Truncate(size)
}

func (f brokenFile) Sync(flags vfs.SyncFlag) error {
	if err := f.fails().sync; err != nil {
		return err
	}
	broken.Lock()
	broken.syncs[f.path]++
	broken.Unlock()
	return f.FileSharedMemory.Sync(flags)
}
