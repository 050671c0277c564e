package sqlitestore_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

const (
	childEnv = "PERDURE_SQLITESTORE_CHILD"
	childDir = "PERDURE_SQLITESTORE_DIR"
)

// children are what the test binary does as another process.
var children = map[string]func(dir string){
	"append": childAppend,
	"scan":   childScan,
	"busy":   childBusy,
	"panic":  childPanic,
	"cast":   childCast,
	"watch":  childWatch,
	"hear":   childHear,
	"die":    childDie,
}

func child(t *testing.T, what, dir string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// wonByEach is how many appends each process has to win.
const wonByEach = 150

// childAppend appends to a journal that others append to at the same time, and
// prints the sequences it got.
func childAppend(dir string) {
	ctx := context.Background()
	s, err := open(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var after uint64
	for won := 0; won < wonByEach; {
		last, err := s.Append(ctx, "shared", after, fmt.Appendf(nil, "%d %d", os.Getpid(), won))
		switch {
		case err == nil:
			fmt.Println(last, os.Getpid(), won)
			won++
			after = last
		case errors.Is(err, store.ErrConflict):
			for e, err := range s.Read(ctx, "shared", after) {
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				after = e.Seq
			}
		default:
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestProcesses has several processes create one store at once and append to
// one journal in it, while this one watches.
func TestProcesses(t *testing.T) {
	const processes = 4
	dir := t.TempDir()
	outs := make([]bytes.Buffer, processes)
	cmds := make([]*exec.Cmd, processes)
	for i := range cmds {
		cmds[i] = child(t, "append", dir)
		cmds[i].Stdout = &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	s := openTest(t, dir)
	got := map[uint64]string{}
	for range s.Watch(t.Context(), "shared") {
		for e, err := range s.Read(t.Context(), "shared", uint64(len(got))) {
			if err != nil {
				t.Fatal(err)
			}
			got[e.Seq] = string(e.Data)
		}
		if len(got) >= processes*wonByEach {
			break
		}
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		for line := range strings.Lines(outs[i].String()) {
			var seq uint64
			var pid, n int
			if _, err := fmt.Sscan(line, &seq, &pid, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if want := fmt.Sprintf("%d %d", pid, n); got[seq] != want {
				t.Errorf("sequence %d holds %q, but it was acknowledged for %q", seq, got[seq], want)
			}
			delete(got, seq)
		}
	}
	for seq, data := range got {
		t.Errorf("sequence %d holds %q, which nobody won", seq, data)
	}
}

// childScan prints which of the byte strings on its standard input, in hex,
// are in a file of the folder. It is a process of its own because a process
// that opens and closes a database file loses SQLite's locks on it.
func childScan(dir string) {
	var all []byte
	files, err := os.ReadDir(dir)
	for _, f := range files {
		var b []byte
		if b, err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			break
		}
		all = append(all, b...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	wanted, lengths, prefix := map[string]bool{}, map[int]bool{}, []byte(nil) // which they share
	for {
		var text string
		if _, err := fmt.Scan(&text); err != nil {
			break
		}
		b, _ := hex.DecodeString(text)
		if len(wanted) == 0 {
			prefix = b
		}
		for !bytes.HasPrefix(b, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
		wanted[string(b)], lengths[len(b)] = true, true
	}
	for ; len(all) > 0; all = all[1:] {
		at := bytes.Index(all, prefix)
		if at < 0 {
			return
		}
		all = all[at:]
		for n := range lengths {
			if n <= len(all) && wanted[string(all[:n])] {
				fmt.Printf("%x\n", all[:n])
				delete(wanted, string(all[:n]))
			}
		}
	}
}

// scan returns which of the byte strings are in the files of a folder.
func scan(t *testing.T, dir string, what ...string) map[string]bool {
	t.Helper()
	cmd := child(t, "scan", dir)
	var in, out bytes.Buffer
	for _, w := range what {
		fmt.Fprintf(&in, "%x\n", w)
	}
	cmd.Stdin, cmd.Stdout = &in, &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		found[string(b)] = true
	}
	return found
}

// childBusy prints whether another process holds the lock.
func childBusy(dir string) {
	s, err := sqlitestore.Open(context.Background(), filepath.Join(dir, "test.db"), sqlitestore.Options{BusyTimeout: time.Millisecond})
	if err == nil {
		_, err = s.Append(context.Background(), "j", 0, []byte("x"))
	}
	fmt.Print(err)
}

// TestFilesMayBeRead reads the store's files with a transaction open. With
// POSIX locks a process that closes a file gives up all its locks on it, and an
// agent's tool that reads the folder it works in would do that.
func TestFilesMayBeRead(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir)
	c := rawConn(t, dir)
	defer c.Close()
	run(t, c, "BEGIN IMMEDIATE")
	files, err := filepath.Glob(filepath.Join(dir, "test.db*"))
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	out, err := child(t, "busy", dir).Output()
	if err != nil || !strings.Contains(string(out), store.ErrBusy.Error()) {
		t.Errorf("another process writes into an open transaction: %s, %v", out, err)
	}
	run(t, c, "ROLLBACK")
	if out, err = child(t, "busy", dir).Output(); err != nil || string(out) != "<nil>" {
		t.Errorf("after the transaction, another process writes: %s, %v", out, err)
	}
}

// childCast casts numbers until it is killed.
func childCast(dir string) {
	s, err := open(context.Background(), dir)
	for n := 0; err == nil; n++ {
		err = store.Cast(context.Background(), s, "numbers", fmt.Append(nil, n))
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// childWatch watches until it is killed.
func childWatch(dir string) {
	s, err := open(context.Background(), dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range store.Watch(context.Background(), s, "") {
		fmt.Println("woken")
	}
}

// childHear ends when it has written something and heard what another cast.
func childHear(dir string) {
	s, err := open(context.Background(), dir)
	if err == nil {
		_, err = s.Append(context.Background(), "heard", 0, []byte("x"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range store.Listen(context.Background(), s, "numbers") {
		return
	}
}

// childPanic has the driver panic in a write, and recovers.
func childPanic(dir string) {
	s, err := open(context.Background(), dir)
	if err != nil {
		fmt.Print(err)
		return
	}
	failDisk(dir, failure{write: panicking{}})
	defer func() { fmt.Print("recovered: ", recover()) }()
	_, err = s.Append(context.Background(), "j", 0, []byte("x"))
	fmt.Print(err)
}

// TestPanicEndsTheProcess, which the store survives.
func TestPanicEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "panic", dir)
	cmd.Stderr = nil
	if out, err := cmd.Output(); err == nil || len(out) > 0 {
		t.Errorf("the process goes on: %s, %v", out, err)
	}
	if _, err := openTest(t, dir).Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Error(err)
	}
}
