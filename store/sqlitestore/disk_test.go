package sqlitestore_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// disk stands between SQLite and the file system of this test binary: it is
// SQLite's own default with the methods that change files replaced, so that a
// test can let those of one folder fail where a disk would.
var disk = struct {
	sync.Mutex
	failing map[string]failure  // by folder or file
	files   map[uintptr]string  // open files, by SQLite's pointer
	methods map[uintptr]uintptr // SQLite's own tables of methods, by ours
	open    uintptr             // SQLite's own xOpen
	syncs   map[string]int      // by file
}{syncs: map[string]int{}, failing: map[string]failure{}, files: map[uintptr]string{}, methods: map[uintptr]uintptr{}}

// failure is what writes and syncs answer, SQLITE_OK for what they do.
type failure struct{ write, sync int32 }

func init() {
	tls := libc.NewTLS()
	own := lib.Xsqlite3_vfs_find(tls, 0)
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	vfs := at[lib.Tsqlite3_vfs](ours)
	*vfs = *at[lib.Tsqlite3_vfs](own)
	disk.open = vfs.FxOpen
	vfs.FzName, _ = libc.CString("failing")
	vfs.FpNext = 0
	vfs.FxOpen = pointer(diskOpen)
	if lib.Xsqlite3_vfs_register(tls, ours, 1) != lib.SQLITE_OK {
		panic("cannot register the failing disk")
	}
}

// failDisk lets a file, or all in a folder, fail from now on, with the zero
// value no more.
func failDisk(path string, f failure) {
	disk.Lock()
	defer disk.Unlock()
	disk.failing[path] = f
}

// syncs returns how often a file was synced.
func syncs(file string) int {
	disk.Lock()
	defer disk.Unlock()
	return disk.syncs[file]
}

func diskOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](disk.open)(tls, vfs, name, file, flags, outFlags)
	f := at[lib.Tsqlite3_file](file)
	if rc != lib.SQLITE_OK || f.FpMethods == 0 || name == 0 {
		return rc
	}
	disk.Lock()
	defer disk.Unlock()
	disk.files[file] = libc.GoString(name)
	for ours, own := range disk.methods {
		if own == f.FpMethods {
			f.FpMethods = ours
			return rc
		}
	}
	ours := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
	m := at[lib.Tsqlite3_io_methods](ours)
	*m = *at[lib.Tsqlite3_io_methods](f.FpMethods)
	m.FxWrite, m.FxTruncate, m.FxSync = pointer(diskWrite), pointer(diskTruncate), pointer(diskSync)
	disk.methods[ours] = f.FpMethods
	f.FpMethods = ours
	return rc
}

// look returns how a file fails now, and SQLite's own methods for it.
func look(file uintptr) (failure, *lib.Tsqlite3_io_methods) {
	disk.Lock()
	defer disk.Unlock()
	own := at[lib.Tsqlite3_io_methods](disk.methods[at[lib.Tsqlite3_file](file).FpMethods])
	for path, f := range disk.failing {
		if name := disk.files[file]; name == path || filepath.Dir(name) == path {
			return f, own
		}
	}
	return failure{}, own
}

func diskWrite(tls *libc.TLS, file, buf uintptr, n int32, offset int64) int32 {
	f, own := look(file)
	if f.write != lib.SQLITE_OK {
		return f.write
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](own.FxWrite)(tls, file, buf, n, offset)
}

func diskTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	f, own := look(file)
	if f.write != lib.SQLITE_OK {
		return lib.SQLITE_IOERR_TRUNCATE
	}
	return function[func(*libc.TLS, uintptr, int64) int32](own.FxTruncate)(tls, file, size)
}

func diskSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	f, own := look(file)
	if f.sync != lib.SQLITE_OK {
		return f.sync
	}
	disk.Lock()
	disk.syncs[disk.files[file]]++
	disk.Unlock()
	return function[func(*libc.TLS, uintptr, int32) int32](own.FxSync)(tls, file, flags)
}

// at returns the value that SQLite keeps at an address.
func at[T any](address uintptr) *T {
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
}

// pointer and function convert between functions and SQLite's pointers to
// them, which are pointers to Go's function values.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// TestNoCallThatCorruptsMemory holds what the driver must not be asked for:
// SetDefensive gives sqlite3_db_config one argument where it reads two, and
// SQLite writes through whatever lies behind the first.
func TestNoCallThatCorruptsMemory(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte(".SetDefensive"+"(")) {
			t.Errorf("%s calls SetDefensive", file)
		}
	}
}
