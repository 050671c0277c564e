package filestore

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// powerDisk remembers what of its writes has been synced, so that cut can
// tell what a power failure leaves: what was synced, and of the rest any part,
// in any order within a file.
type powerDisk struct {
	osDisk
	mu    sync.Mutex
	root  string
	files map[string]*powerFile            // by path, as the process sees it
	dirs  map[string]map[string]*powerFile // synced entries of each folder; nil for a folder
	moves map[string][]move                // changes of folders that are not synced
}

type powerFile struct {
	synced  []byte
	pending []func([]byte) []byte
}

type move struct {
	name   string
	file   *powerFile
	gone   bool
	folder bool
}

func newPowerDisk(t *testing.T, root string) *powerDisk {
	d := &powerDisk{osDisk: osDisk{noSync: true}, root: root, files: map[string]*powerFile{},
		dirs: map[string]map[string]*powerFile{}, moves: map[string][]move{}}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == "LOCK" {
			return err
		}
		var f *powerFile
		if e.IsDir() {
			d.dirs[path] = map[string]*powerFile{}
		} else {
			f = &powerFile{}
			if f.synced, err = os.ReadFile(path); err != nil {
				return err
			}
			d.files[path] = f
		}
		if path != root {
			d.dirs[filepath.Dir(path)][e.Name()] = f
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *powerDisk) moved(path string, m move) {
	dir := filepath.Dir(path)
	m.name = filepath.Base(path)
	d.moves[dir] = append(d.moves[dir], m)
}

func (d *powerDisk) create(path string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = &powerFile{}
	d.moved(path, move{file: d.files[path]})
	return d.osDisk.create(path)
}

func (d *powerDisk) write(f *os.File, b []byte, at int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.osDisk.write(f, b, at); err != nil {
		return err
	}
	b = slices.Clone(b)
	p := d.files[f.Name()]
	const sector = 64 // small, so that small writes tear too
	for ; len(b) > 0; at += sector {
		piece, at := b[:min(sector, len(b))], at
		p.pending = append(p.pending, func(c []byte) []byte {
			if short := at + int64(len(piece)) - int64(len(c)); short > 0 {
				c = append(c, make([]byte, short)...)
			}
			copy(c[at:], piece)
			return c
		})
		b = b[len(piece):]
	}
	return nil
}

func (d *powerDisk) truncate(f *os.File, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.files[f.Name()]
	p.pending = append(p.pending, func(c []byte) []byte { return c[:min(int64(len(c)), size)] })
	return d.osDisk.truncate(f, size)
}

func (d *powerDisk) sync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.files[f.Name()]
	for _, change := range p.pending {
		p.synced = change(p.synced)
	}
	p.pending = nil
	return nil
}

// lose is a failed sync: the bytes still can be read, but the system holds
// them to be written, and no later sync writes them.
func (d *powerDisk) lose(f *os.File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[f.Name()].pending = nil
}

func (d *powerDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[to] = d.files[from]
	delete(d.files, from)
	d.moved(from, move{gone: true})
	d.moved(to, move{file: d.files[to]})
	return d.osDisk.rename(from, to)
}

func (d *powerDisk) remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, path)
	d.moved(path, move{gone: true})
	return d.osDisk.remove(path)
}

func (d *powerDisk) mkdir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.osDisk.mkdir(path)
	if err == nil {
		d.dirs[path] = map[string]*powerFile{}
		d.moved(path, move{folder: true})
	}
	return err
}

func (d *powerDisk) syncDir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dirs[path] == nil {
		return nil // the folder above the store
	}
	d.dirs[path] = d.after(path, len(d.moves[path]))
	d.moves[path] = nil
	return nil
}

// after returns the entries of a folder with its first n unsynced changes.
func (d *powerDisk) after(dir string, n int) map[string]*powerFile {
	entries := maps.Clone(d.dirs[dir])
	for _, m := range d.moves[dir][:n] {
		entries[m.name] = m.file
		if m.gone {
			delete(entries, m.name)
		}
	}
	return entries
}

// cut writes what a power failure leaves into a new folder.
func (d *powerDisk) cut(t *testing.T, rng *rand.Rand) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	to := filepath.Join(t.TempDir(), "after")
	var write func(dir, to string)
	write = func(dir, to string) {
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, f := range d.after(dir, rng.IntN(len(d.moves[dir])+1)) {
			if f == nil {
				write(filepath.Join(dir, name), filepath.Join(to, name))
				continue
			}
			content := slices.Clone(f.synced)
			for _, change := range f.pending {
				if rng.IntN(2) == 0 {
					content = change(content)
				}
			}
			if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(d.root, to)
	return to
}

// TestPowerCut cuts the power at each operation of the script. What was
// acknowledged is there afterwards, and so is what was read after a mere
// crash of the process: a reader is never shown what the disk may lose.
func TestPowerCut(t *testing.T) {
	for _, effect := range []effect{nothing, everything, half} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("effect=%v/crash=%v", effect, crash), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, uint64(effect)))
				for n := range len(operations(t)) + 1 {
					cutPower(t, n+1, effect, crash, rng)
				}
			})
		}
	}
}

// cutPower plays the script up to operation n and cuts the power; with crash,
// only after another process has recovered the store, read it, and perhaps
// written to it.
func cutPower(t *testing.T, n int, effect effect, crash bool, rng *rand.Rand) {
	t.Helper()
	dir := shortLived(t)
	defer os.RemoveAll(dir)
	power, sc := newPowerDisk(t, dir), newScript(t)
	d := &faultDisk{disk: power, err: syscall.EIO}
	defer func() {
		if t.Failed() {
			t.Logf("the power was cut at operation %d, %s", n, d.failed)
		}
	}()
	d.set(n, true, effect)
	s, err := openFolder(t.Context(), dir, Options{NoSync: true}, d)
	if err == nil {
		sc.s = s
		sc.play()
		s.Close()
	}
	if crash {
		sc.s = mustOpen(t, dir, power)
		sc.check()
		if n%2 == 0 {
			sc.extend()
		}
		sc.s.Close()
	}
	for range 2 {
		after := power.cut(t, rng)
		power = newPowerDisk(t, after)
		sc.s = mustOpen(t, after, power)
		sc.check()
		sc.extend()
		sc.s.Close()
		os.RemoveAll(filepath.Dir(after))
	}
}
