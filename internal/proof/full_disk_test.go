//go:build linux

package proof_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/observed"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// fullEnv is set in a process whose files may not grow, see limitDisk.
const fullEnv = "PERDURE_TEST_FULL_DISK"

// TestFullDisk fills a real disk under a run, several times. While it is full
// nothing that was acknowledged is lost and all can be looked at; when there is
// space again the run goes on and ends, in the same process and the same Work,
// with each step recorded once.
func TestFullDisk(t *testing.T) {
	for _, scheme := range []string{"sqlite", "file"}[:kit.Sized(1, 2, 2)] {
		t.Run(scheme, func(t *testing.T) {
			t.Run("limit", func(t *testing.T) {
				if os.Getenv(fullEnv) != "" {
					fullDisk(t, scheme, newLimitDisk(t))
					return
				}
				t.Parallel() // it mostly waits until the store is opened again
				limitedChild(t)
			})
			for _, fs := range []string{"tmpfs", "ext4"} {
				if os.Getenv(fullEnv) != "" {
					break
				}
				d := &mountedDisk{dir: filepath.Join(t.TempDir(), "mount")}
				if err := d.mount(fs); err != nil {
					t.Logf("no %s here, so only limited file sizes show what a full disk does: %v", fs, err)
					continue
				}
				t.Cleanup(func() {
					kit.Unmount(t, d.dir)
				})
				t.Run(fs, func(t *testing.T) {
					t.Parallel()
					fullDisk(t, scheme, d)
				})
			}
		})
	}
}

// smallDisk is a disk that can be made full. Filling it again takes what space
// has come back since.
type smallDisk interface {
	folder() string
	fill() error
	empty() error
}

// limitedChild runs the test in a process of its own, since a limit of file
// sizes is the whole process's.
func limitedChild(t *testing.T) {
	t.Helper()
	parts := strings.Split(t.Name(), "/")
	for i := range parts {
		parts[i] = "^" + parts[i] + "$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.v", "-test.count=1", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), fullEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("the process with limited files: %v\n%s", err, out)
	}
}

// limitDisk is full when no file of this process may be written to.
type limitDisk struct {
	dir string
	was syscall.Rlimit
}

func newLimitDisk(t *testing.T) *limitDisk {
	d := &limitDisk{dir: t.TempDir()}
	signal.Ignore(syscall.SIGXFSZ) // writes answer EFBIG instead
	kit.NoErr(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &d.was))
	return d
}

func (d *limitDisk) folder() string { return d.dir }

func (d *limitDisk) empty() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &d.was) }

func (d *limitDisk) fill() error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: d.was.Max})
}

// mountedDisk is a file system of its own, filled with a file.
type mountedDisk struct {
	dir  string
	size int // 0: diskSize
}

// diskSize is more than a run writes, also into a log that is not yet copied.
const diskSize = 32 << 20

func (d *mountedDisk) mount(fs string) error {
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return err
	}
	if fs == "tmpfs" {
		return syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", cmp.Or(d.size, diskSize)))
	}
	image := d.dir + ".image"
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, diskSize)); err != nil {
		return err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, d.dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

func (d *mountedDisk) folder() string { return d.dir }

func (d *mountedDisk) filler() string { return filepath.Join(d.dir, "filler") }

func (d *mountedDisk) empty() error { return os.Remove(d.filler()) }

func (d *mountedDisk) fill() error {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for len(chunk) > 0 {
		if n, err := f.Write(chunk); n > 0 {
			continue
		} else if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("filling the disk: %w", err)
		}
		chunk = chunk[:len(chunk)/2]
	}
	return nil
}

// fullTest is a run on a disk that gets full.
type fullTest struct {
	*testing.T
	disk smallDisk
	url  string

	mu     sync.Mutex
	full   bool
	fails  int                      // since the disk is full
	failed chan struct{}            // closed when there are enough
	fills  map[string]chan struct{} // by the path of the step in which the disk gets full; closed then
	acked  map[uint64]perdure.Event
	opens  int
}

const (
	fullSteps   = 60
	enoughFails = 3
)

// fullAt are the steps in which the disk gets full. The second has a value that
// is kept apart from its entry.
var fullAt = []int{7, 29, 50}

func fullName(i int) string { return fmt.Sprintf("step-%02d", i) }

func fullValue(i int) string {
	size := 5000
	if i%10 == 9 {
		size = 150_000
	}
	r := rand.NewChaCha8([32]byte{byte(i)})
	b := make([]byte, size)
	for i := range b {
		b[i] = 'a' + byte(r.Uint64()%26)
	}
	return string(b)
}

// fillNow makes the disk full, and has it refilled with every opening, since
// that may free space.
func (f *fullTest) fillNow(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reached, ok := f.fills[step]
	if !ok {
		return
	}
	delete(f.fills, step) // the step may run again
	f.full, f.fails, f.failed = true, 0, make(chan struct{})
	if err := f.disk.fill(); err != nil {
		f.Error(err)
	}
	close(reached)
}

// fail notes a failure that was seen while the disk is full.
func (f *fullTest) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails++; f.full && f.fails == enoughFails {
		close(f.failed)
	}
}

func (f *fullTest) open(ctx context.Context) (store.Store, error) {
	f.mu.Lock()
	f.opens++
	f.mu.Unlock()
	s, err := store.Open(ctx, f.url)
	f.mu.Lock()
	if f.full {
		if err := f.disk.fill(); err != nil {
			f.Error(err)
		}
	}
	f.mu.Unlock()
	if err != nil {
		f.fail()
		return nil, err
	}
	return observed.New(s, observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
		return ctx, func(r observed.Result) {
			if errors.Is(r.Err, store.ErrPoisoned) {
				f.fail()
			}
		}
	})), nil
}

// Committed implements perdure.Observer.
func (f *fullTest) Committed(e perdure.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked[e.Seq] = e
}

// StepStarted implements perdure.Observer.
func (f *fullTest) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, nil
}

func (f *fullTest) flow(ctx context.Context, _ string) (int, error) {
	total := 0
	for i := range fullSteps {
		v, err := perdure.Step(ctx, fullName(i), func(context.Context) (string, error) {
			f.fillNow(fullName(i))
			return fullValue(i), nil
		})
		if err != nil {
			return 0, err
		}
		if v != fullValue(i) {
			return 0, fmt.Errorf("step %d has another value", i)
		}
		total += len(v)
	}
	return total, nil
}

func fullDisk(t *testing.T, scheme string, d smallDisk) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	f := &fullTest{T: t, disk: d, url: scheme + ":" + filepath.Join(d.folder(), "store"),
		acked: map[uint64]perdure.Event{}, fills: map[string]chan struct{}{}}
	reached := map[int]chan struct{}{}
	for _, i := range fullAt {
		reached[i] = make(chan struct{})
		f.fills[fullName(i)] = reached[i]
	}
	s, err := store.Reopen(ctx, f.open)
	kit.NoErr(t, err)
	defer s.Close()
	rt, err := perdure.New(ctx, s, perdure.Options{Observer: f, Lease: 400 * time.Millisecond}, perdure.NewFlow("flow", f.flow))
	kit.NoErr(t, err)
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(working) }()
	defer func() {
		stop()
		if err := <-worked; err != nil {
			t.Errorf("Work = %v", err)
		}
	}()
	if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "flow", Input: ""}); err != nil {
		t.Fatal(err)
	}
	for _, i := range fullAt {
		f.await(ctx, worked, reached[i], fmt.Sprintf("step %d", i))
		f.await(ctx, worked, f.failed, "failures of the full disk")
		f.whileFull(ctx, rt)
		f.mu.Lock()
		f.full = false
		err := d.empty()
		f.mu.Unlock()
		kit.NoErr(t, err)
	}
	run, err := rt.WaitEnd(ctx, "t", "")
	kit.NoErr(t, err)
	total := 0
	for i := range fullSteps {
		total += len(fullValue(i))
	}
	if want := fmt.Sprint(total); run.Status != perdure.Succeeded || string(run.Output) != want {
		t.Fatalf("the run %s with %s (%s), want success with %s", run.Status, run.Output, run.Error, want)
	}
	f.holdsAcked(ctx, rt, true)
	select {
	case err := <-worked:
		t.Errorf("Work has ended meanwhile: %v", err)
		worked <- err
	default:
	}
	t.Logf("the store was opened %d times", f.opens)
	if f.opens < 1+len(fullAt) {
		t.Errorf("the store was opened %d times, want again for each full disk", f.opens)
	}
	f.afterRestart(ctx, s, stop)
}

// await waits for what must come while the worker works.
func (f *fullTest) await(ctx context.Context, worked chan error, c <-chan struct{}, what string) {
	f.Helper()
	select {
	case <-c:
	case err := <-worked:
		worked <- err
		f.Fatalf("Work ended before %s: %v", what, err)
	case <-ctx.Done():
		f.Fatalf("waited in vain for %s", what)
	}
}

// whileFull looks at the thread on a full disk, and fails to start another.
func (f *fullTest) whileFull(ctx context.Context, rt *perdure.Runtime) {
	f.Helper()
	thread, err := rt.Get(ctx, "t")
	if err != nil || thread.Status != perdure.Running {
		f.Fatalf("Get on a full disk = %+v, %v, want a thread that runs", thread, err)
	}
	f.holdsAcked(ctx, rt, false)
	// It would wait for space. On a busy machine a short wait may end before the first write.
	for limit := 300 * time.Millisecond; limit < time.Minute; limit *= 4 {
		short, cancel := context.WithTimeout(ctx, limit)
		_, err = rt.Start(short, perdure.StartRequest{Thread: "other", Flow: "flow", Input: ""})
		if cancel(); err == nil || errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPoisoned) {
		f.Errorf("Start on a full disk = %v, want ErrUnavailable", err)
	}
	if _, real := f.disk.(*mountedDisk); real && !errors.Is(err, store.ErrFull) {
		f.Errorf("Start on a full disk = %v, want ErrFull as its cause", err)
	}
}

// holdsAcked demands that every entry that was told to the observer is in the
// journal, and each step once, all of them at the end.
func (f *fullTest) holdsAcked(ctx context.Context, rt *perdure.Runtime, end bool) {
	f.Helper()
	f.mu.Lock()
	acked := make(map[uint64]perdure.Event, len(f.acked))
	for seq, e := range f.acked {
		acked[seq] = e
	}
	f.mu.Unlock()
	steps := map[string]int{}
	for e, err := range rt.Events(ctx, "t", perdure.EventOptions{Replay: true}) {
		if err != nil {
			f.Fatalf("Events = %v", err)
		}
		if e.Kind == "step" {
			steps[e.Path]++
		}
		if told, ok := acked[e.Seq]; ok {
			e.Value, told.Value = nil, nil // an observer is told without large ones; the flow compares them
			if diff := gocmp.Diff(told, e); diff != "" {
				f.Errorf("event %d is not what was acknowledged (-want +got):\n%s", e.Seq, diff)
			}
			delete(acked, e.Seq)
		}
	}
	if len(acked) > 0 {
		f.Errorf("%d acknowledged entries are not in the journal: %v", len(acked), acked)
	}
	for i := range fullSteps {
		if n := steps["/"+fullName(i)]; n > 1 || end && n != 1 {
			f.Errorf("step %d is recorded %d times, want once", i, n)
		}
	}
}

// afterRestart closes all, opens the store anew and looks again.
func (f *fullTest) afterRestart(ctx context.Context, s store.Store, stop func()) {
	f.Helper()
	stop()
	if err := s.Close(); err != nil {
		f.Errorf("Close = %v", err)
	}
	rt, err := perdure.Open(ctx, f.url)
	if err != nil {
		f.Fatal(err)
	}
	defer rt.Close()
	f.holdsAcked(ctx, rt, true)
}
