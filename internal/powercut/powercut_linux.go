package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/perdure/perdure/store/storetest"
)

// size of the disk. It is sparse: only what is written takes space.
const size = 512 << 20

type disk struct{ image, dir string }

// New returns a disk for the time of a test, or skips the test where none can
// be had, and says why.
func New(tb testing.TB) storetest.Disk {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("cutting the power of a disk needs root, to mount one")
	}
	dir := tb.TempDir()
	d := &disk{image: filepath.Join(dir, "image"), dir: filepath.Join(dir, "mount")}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, size), os.Mkdir(d.dir, 0o700)); err != nil {
		tb.Fatal(err)
	}
	if err := run("mkfs.ext4", "-q", "-F", d.image); err != nil {
		tb.Skipf("cutting the power of a disk needs mkfs.ext4, to make one: %v", err)
	}
	// What a shared mount has in it leaves the mount namespaces of other programs when it
	// leaves this one. They would hold the file system, and mounting would give the one that
	// was shut down again.
	if err := errors.Join(syscall.Mount(dir, dir, "", syscall.MS_BIND, ""), syscall.Mount("", dir, "", syscall.MS_SHARED, "")); err != nil {
		tb.Skipf("cutting the power of a disk needs mounts: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			tb.Errorf("unmount %s: %v", dir, err)
		}
	})
	if err := d.mount(); err != nil {
		tb.Skipf("cutting the power of a disk needs loop devices: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(d.dir, 0); err != nil {
			tb.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	if err := errors.Join(os.Mkdir(d.Dir(), 0o700), run("sync", "-f", d.dir)); err != nil {
		tb.Fatal(err)
	}
	return d
}

func (d *disk) mount() error { return run("mount", "-o", "loop", d.image, d.dir) }

// Dir implements storetest.Disk.
func (d *disk) Dir() string { return filepath.Join(d.dir, "store") }

// Cut implements storetest.Disk. The process and its children stand still before the
// file system goes down, since that takes a moment: a sync in that moment can
// answer success for what is lost, as no disk without power does. A plain loop
// of writes and syncs, without a store, loses its last record so in one of
// some 25 cuts.
func (d *disk) Cut(pid int) error {
	if _, err := freeze(pid); err != nil {
		return err
	}
	return d.shutdown()
}

// Kill kills a process and its children, frozen or not, and waits until they are gone.
func Kill(pid int) error {
	all, err := freeze(pid)
	if err != nil {
		return err
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("powercut: kill process %d: %w", pid, err)
		}
	}
	for _, pid := range all {
		if err := until(pid, "end", ""); !errors.Is(err, errGone) {
			return err
		}
	}
	return nil
}

// freeze stops a process and then its children, of which there are no new ones by
// then, and theirs. It returns them all.
func freeze(pid int) ([]int, error) {
	if err := stop(pid); err != nil {
		return nil, err
	}
	all := []int{pid}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, name := range lists {
		list, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, child := range strings.Fields(string(list)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return nil, err
			}
			more, err := freeze(n)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	return all, nil
}

// stop stops a process and waits until all its threads stand still. One that has ended,
// and whose parent has not taken notice, does.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("powercut: stop process %d: %w", pid, err)
	}
	return until(pid, "stop", "TZ")
}

var errGone = errors.New("the process is gone")

// until waits until all threads of a process are in one of some states, see proc(5).
func until(pid int, verb, states string) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		if in, err := allIn(pid, states); in || err != nil {
			return err
		}
	}
	return fmt.Errorf("powercut: process %d does not %s", pid, verb)
}

func allIn(pid int, states string) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	if len(stats) == 0 {
		return false, fmt.Errorf("powercut: process %d: %w", pid, errGone)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name of the command, which is in brackets.
		if _, state, ok := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); !ok || !strings.Contains(states, state[:1]) {
			return false, nil
		}
	}
	return true, nil
}

// shutdown makes the file system forget what is not synced, and refuse all
// work from now on.
func (d *disk) shutdown() error {
	const (
		goingDown  = 0x8004587d // EXT4_IOC_SHUTDOWN, the same as XFS_IOC_GOINGDOWN
		noLogFlush = 2
	)
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	how := uint32(noLogFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), goingDown, uintptr(unsafe.Pointer(&how)))
	if errno != 0 {
		return fmt.Errorf("powercut: shut %s down: %w", d.dir, errno)
	}
	return nil
}

// Restore implements storetest.Disk. A program that has just begun a mount namespace of
// its own may still hold the file system, for a moment.
func (d *disk) Restore() error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err := syscall.Unmount(d.dir, 0); err != nil {
			return fmt.Errorf("powercut: unmount %s: %w", d.dir, err)
		}
		if err := d.mount(); err != nil {
			return err
		}
		probe := filepath.Join(d.dir, "probe")
		err := os.Mkdir(probe, 0o700)
		if err == nil {
			return os.Remove(probe)
		}
		if !errors.Is(err, syscall.EIO) || time.Now().After(end) {
			return fmt.Errorf("powercut: %s is still shut down; does another program hold it in a mount namespace? %w", d.dir, err)
		}
	}
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Options returns how many cuts a test makes: a few, or with PERDURE_TORTURE
// in the environment many.
func Options() storetest.KillOptions {
	if os.Getenv("PERDURE_TORTURE") != "" {
		return storetest.KillOptions{Kills: 1000, Acks: 20_000}
	}
	return storetest.KillOptions{Kills: 25, Acks: 500}
}
