package filestore

import (
	"os"
	"sync"
	"syscall"
)

// faultDisk is a disk that fails on demand.
type faultDisk struct {
	disk
	mu      sync.Mutex
	count   int    // operations so far
	from    int    // the first one to fail; 0 for none
	forever bool   // all behind it fail too
	effect  effect // what a failing operation still does
	err     error
	log     []string // the operations so far
	failed  string   // the last one that failed
}

// effect is how much of a failing operation happens.
type effect int

const (
	nothing effect = iota
	everything
	half // of a write; a sync loses what it should keep, others do nothing
)

func (e effect) String() string { return [...]string{"nothing", "everything", "half"}[e] }

func newFaultDisk() *faultDisk { return &faultDisk{disk: osDisk{noSync: true}, err: syscall.EIO} }

// set changes what fails.
func (d *faultDisk) set(from int, forever bool, effect effect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count, d.from, d.forever, d.effect = 0, from, forever, effect
}

func (d *faultDisk) do(op string, run, short func() error) error {
	d.mu.Lock()
	d.count++
	d.log = append(d.log, op)
	fails := d.from != 0 && (d.count == d.from || d.forever && d.count > d.from)
	effect := d.effect
	if fails {
		d.failed = op
	}
	d.mu.Unlock()
	if !fails {
		return run()
	}
	switch effect {
	case everything:
		run()
	case half:
		short()
	}
	return &os.PathError{Op: op, Path: "fault", Err: d.err}
}

func none() error { return nil }

func (d *faultDisk) create(path string) (f *os.File, err error) {
	err = d.do("create", func() error { f, err = d.disk.create(path); return err }, none)
	if err != nil && f != nil {
		f.Close()
	}
	return f, err
}

func (d *faultDisk) write(f *os.File, b []byte, at int64) error {
	return d.do("write", func() error { return d.disk.write(f, b, at) },
		func() error { return d.disk.write(f, b[:len(b)/2], at) })
}

func (d *faultDisk) truncate(f *os.File, size int64) error {
	return d.do("truncate", func() error { return d.disk.truncate(f, size) }, none)
}

func (d *faultDisk) sync(f *os.File) error {
	return d.do("sync", func() error { return d.disk.sync(f) }, func() error {
		if power, ok := d.disk.(*powerDisk); ok {
			power.lose(f)
		}
		return nil
	})
}

func (d *faultDisk) rename(from, to string) error {
	return d.do("rename", func() error { return d.disk.rename(from, to) }, none)
}

func (d *faultDisk) remove(path string) error {
	return d.do("remove", func() error { return d.disk.remove(path) }, none)
}

func (d *faultDisk) mkdir(path string) error {
	return d.do("mkdir", func() error { return d.disk.mkdir(path) }, none)
}

func (d *faultDisk) syncDir(path string) error {
	return d.do("syncDir", func() error { return d.disk.syncDir(path) }, none)
}
