package storetest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// KillOptions says how much Kill requires. Zero values mean the defaults. With go
// test -short Kill requires a tenth of that.
type KillOptions struct {
	Kills int // kills that count; 0 means 200
	Acks  int // acknowledged appends over all lives; 0 means 20 000
}

// Kill checks that a store survives its process. It runs the test binary again as
// a child that opens the store and writes from several goroutines, kills that
// child at random moments as kill -9 does, and checks what is left: every
// acknowledged append and put is there byte for byte, what was dropped or deleted
// stays away, sequences are dense, no append is torn, refused appends left
// nothing, a batch has its cells if and only if it has its entries, and there is
// nothing that was never written. Then the next child continues with the same store. Some
// children are killed while they are still opening it, and after some kills the
// next child does the recovery, not the parent.
//
// A kill counts if an append was acknowledged since the previous one.
//
// The child runs the test that calls Kill up to the same call, which then does not
// return. So call Kill in a test or subtest of its own, which does nothing before the
// call that a child should not do too.
func Kill(t *testing.T, open Opener, o KillOptions) {
	t.Helper()
	kill(t, open, nil, o.sized())
}

// Disk is a disk whose power a test can cut: see PowerCut.
type Disk interface {
	// Dir is a folder on the disk for the store.
	Dir() string
	// Cut freezes the process pid, without ending it, and then makes the disk
	// forget whatever is not synced. Process and disk must not see each other
	// fail: nobody is told of a power failure.
	Cut(pid int) error
	// Restore brings the disk back once the process is dead.
	Restore() error
}

// PowerCut is Kill for stores that claim store.Power: with each kill, the disk
// under the store loses power. NewDisk creates the disk; it is not called in the
// children.
func PowerCut(t *testing.T, open Opener, newDisk func(testing.TB) Disk, o KillOptions) {
	t.Helper()
	kill(t, open, newDisk, o.sized())
}

// sized fills in the defaults, and asks for a tenth with -short.
func (o KillOptions) sized() KillOptions {
	o.Kills, o.Acks = cmp.Or(o.Kills, 200), cmp.Or(o.Acks, 20_000)
	if testing.Short() {
		o.Kills, o.Acks = (o.Kills+9)/10, (o.Acks+9)/10
	}
	return o
}

func kill(t testing.TB, open Opener, newDisk func(testing.TB) Disk, o KillOptions) {
	t.Helper()
	if text := os.Getenv(killEnv); text != "" {
		var order killOrder
		if err := json.Unmarshal([]byte(text), &order); err != nil || order.Test != t.Name() {
			t.Skipf("this process is a child of storetest.Kill in another test: %s=%s", killEnv, text)
		}
		killed(open, order)
	}
	if _, twice := killing.LoadOrStore(t.Name(), true); twice {
		t.Fatalf("storetest: Kill is called twice in %s, but a child only reaches the first call; run each in a subtest of its own with t.Run", t.Name())
	}
	t.Cleanup(func() { killing.Delete(t.Name()) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("storetest: Kill cannot find the test binary to run as its child: %v", err)
	}
	k := &killer{TB: t, ctx: t.Context(), open: open, exe: exe, end: time.Now().Add(killTime)}
	if newDisk == nil {
		k.dir = t.TempDir()
	} else {
		k.disk = newDisk(t)
		k.dir = k.disk.Dir()
	}
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			k.end = end.Add(-killMargin)
		}
	}
	mean := max(1, (o.Acks+o.Kills-1)/o.Kills)
	for k.kills < o.Kills || k.acks < o.Acks {
		if time.Now().After(k.end) || len(k.lives) > 4*o.Kills+100 {
			k.Fatalf("storetest: Kill ran out of time or tries: %v; want %d kills that count and %d acknowledged appends. Ask for less with KillOptions, or give go test a longer -timeout.", k, o.Kills, o.Acks)
		}
		// One in eight dies early, the third being the first, and that and one
		// in four others leave the recovery to the next child.
		early := len(k.lives)%8 == 2
		if !early && rand.IntN(4) != 0 {
			k.check(k.lives[k.checked:], k.spanned)
		}
		k.live(max(1, mean*3/4)+rand.IntN(mean*3/4+1), early)
	}
	for _, l := range k.lives {
		l.forget()
	}
	k.check(k.lives, 0)
	if k.Failed() {
		return
	}
	k.Logf("%v; nothing lost", k)
}

const (
	killEnv    = "PERDURE_STORETEST_KILL"
	killTime   = 15 * time.Minute // where go test sets no deadline
	killMargin = 15 * time.Second // before that deadline, to say what happened
	lifeTime   = 2 * time.Minute  // after which a child is stuck
)

// killing holds the names of the tests that are in Kill.
var killing sync.Map

// killOrder tells a child what to do.
type killOrder struct {
	Test    string
	Dir     string
	Life    int
	Spanned uint64 // where the spanning journal ended when it was last looked at
}

// killer is the parent of all lives.
type killer struct {
	testing.TB
	ctx  context.Context
	open Opener
	exe  string
	dir  string
	disk Disk // nil if its power stays on
	end  time.Time

	lives   []*life
	checked int           // lives that were checked
	spanned uint64        // the end of the spanning journal then
	start   time.Duration // in the last life, from opening the store to the first acknowledgement

	kills, early, acks, puts    int // early are the kills that do not count
	struck, inFlight, completed int // kills in mid call, the appends they cut, and those of them that are there
}

func (k *killer) String() string {
	return fmt.Sprintf("%d kills (and %d before a first acknowledgement), %d appends and %d puts acknowledged; %d of all kills came during a call and cut off %d appends, %d of which were found whole and the others absent",
		k.kills, k.early, k.acks, k.puts, k.struck, k.inFlight, k.completed)
}

// live runs a child until it has acknowledged so many appends and a little
// longer, or not even until it has opened the store, and kills it.
func (k *killer) live(acks int, early bool) {
	l := &life{number: len(k.lives) + 1}
	k.lives = append(k.lives, l)
	order, err := json.Marshal(killOrder{k.Name(), k.dir, l.number, k.spanned})
	if err != nil {
		k.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(k.exe, childArgs(k.Name())...)
	cmd.Env = append(os.Environ(), killEnv+"="+string(order))
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // stays open as long as this process lives
	if err != nil {
		k.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		k.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.Fatalf("storetest: Kill cannot run the test binary as its child: %v", err)
	}
	born := time.Now()
	hit := make(chan error, 1)
	strike := func(after time.Duration) *time.Timer {
		return time.AfterFunc(after, func() { hit <- k.strike(cmd.Process) })
	}
	limit := time.AfterFunc(min(lifeTime, time.Until(k.end)), func() { cmd.Process.Kill() })
	defer limit.Stop()
	var shot *time.Timer
	var opening, first time.Time
	var other []string // what the child says that is not of the protocol
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // a line that the kill cut says nothing
			break
		}
		if said, ok := strings.CutPrefix(line, killMark); !ok {
			other = append(other, line)
		} else if err := l.note(strings.TrimSpace(said)); err != nil {
			cmd.Process.Kill()
			io.Copy(io.Discard, lines)
			cmd.Wait()
			k.Fatalf("life %d: %v", l.number, err)
		}
		if l.opening && opening.IsZero() {
			if opening = time.Now(); early {
				shot = strike(upTo(k.start))
			}
		}
		if l.acks > 0 && first.IsZero() {
			first = time.Now()
			k.start = first.Sub(opening)
		}
		if l.acks >= acks && shot == nil {
			gap := time.Since(first) / time.Duration(l.acks)
			shot = strike(upTo(4*gap + 100*time.Microsecond))
		}
	}
	struck := shot != nil && !shot.Stop() && <-hit == nil
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code == 0 || code > 1 {
		struck = false // the kill hit one who was dead: killed is -1, or 1 on Windows
	}
	if text := stderr.String(); strings.Contains(text, "DATA RACE") {
		k.Errorf("life %d raced:\n%s", l.number, text)
	}
	if !struck {
		k.Fatalf("life %d ended by itself after %d acknowledged appends and %v (%v). It must write until it is killed: is it stuck, or does something before Kill in this test fail or exit in the child?\n%s%s",
			l.number, l.acks, time.Since(born).Round(time.Millisecond), cmd.ProcessState, strings.Join(other, ""), stderr.String())
	}
	if k.disk != nil {
		if err := k.disk.Restore(); err != nil {
			k.Fatalf("after life %d the disk does not come back: %v", l.number, err)
		}
	}
	if l.acks > 0 {
		k.kills++
	} else {
		k.early++
	}
	k.acks += l.acks
	k.puts += l.puts
}

// strike kills a child, and cuts the power with it.
func (k *killer) strike(child *os.Process) error {
	var err error
	if k.disk != nil {
		err = k.disk.Cut(child.Pid)
	}
	return errors.Join(err, child.Kill())
}

// check opens the store and looks at these lives, and at the spanning journal
// behind a sequence.
func (k *killer) check(lives []*life, behind uint64) {
	s, err := k.open(k.ctx, k.dir)
	if err != nil {
		k.Fatalf("after life %d was killed the store does not open: %v. A store that survives its process must open in whatever state the process left it.", len(k.lives), err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			k.Errorf("after life %d: Close: %v", len(k.lives), err)
		}
	}()
	k.compare(s, lives, behind)
	if behind == 0 {
		k.names(s)
	}
	k.checked = len(k.lives)
}

// exactly returns the -test.run pattern of one test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func upTo(d time.Duration) time.Duration { return rand.N(d + 1) }

// childArgs returns the flags of a child: the one test, and those flags of
// this process that are the test's own and may matter to its Opener.
func childArgs(name string) []string {
	args := []string{"-test.run=" + exactly(name), "-test.count=1"}
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.") {
			args = append(args, arg)
		}
	}
	return args
}
