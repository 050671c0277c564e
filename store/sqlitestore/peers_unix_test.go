//go:build unix

package sqlitestore_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

const peersFolder = "test.db-peers"

// start starts a child, and returns the lines that it prints. It is killed when
// the test ends.
func start(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := child(t, what, dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

// hearFrom casts to one handle again and again until another hears it.
func hearFrom(t *testing.T, listener, sender store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_ = store.Cast(ctx, sender, "hear", []byte("me"))
			time.Sleep(time.Millisecond)
		}
	}()
	for m := range store.Listen(ctx, listener, "hear") {
		if string(m) != "me" {
			t.Fatalf("heard %q", m)
		}
		return
	}
	t.Fatal("nothing was heard in a minute")
}

// awaitWake appends through one handle until another wakes and reads that.
func awaitWake(t *testing.T, watcher, writer store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	entries, err := store.ReadAll(ctx, writer, "wake", 0)
	if err != nil {
		t.Fatal(err)
	}
	last, first := uint64(len(entries)), true
	for range store.Watch(ctx, watcher, "wake") {
		for e, err := range watcher.Read(ctx, "wake", last) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq == last+1 {
				return
			}
		}
		if first {
			if _, err := writer.Append(ctx, "wake", last, []byte("x")); err != nil {
				t.Fatal(err)
			}
			first = false
		}
	}
	t.Fatal("no wake-up came in a minute")
}

// sockets returns the sockets of the handles that listen.
func sockets(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(dir, peersFolder))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names
}

// fakePeer listens beside the stores on dir.
func fakePeer(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	folder := filepath.Join(dir, peersFolder)
	if err := os.Mkdir(folder, 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "fake"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestPeersInTurn has processes come, be stopped, be killed and come again, while
// this one hears and wakes them.
func TestPeersInTurn(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		caster, _ := start(t, "cast", dir)
		heard, last := 0, -1
		for m := range store.Listen(ctx, s, "numbers") {
			var n int
			if fmt.Sscan(string(m), &n); n <= last {
				t.Fatalf("heard %d after %d", n, last)
			}
			if last, heard = n, heard+1; heard == 100 {
				break
			}
		}
		if heard < 100 {
			t.Fatalf("heard %d of 100 messages in a minute", heard)
		}
		caster.Process.Kill()
		caster.Wait()
	}

	stopped, out := start(t, "watch", dir)
	awake, awoken := start(t, "watch", dir)
	for _, out := range []*bufio.Reader{out, awoken} {
		if line, err := out.ReadString('\n'); err != nil || line != "woken\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 100<<10)
	for n := range uint64(200) {
		if _, err := s.Append(ctx, "j", n, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Cast(ctx, "large", large); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []struct {
		*exec.Cmd
		*bufio.Reader
	}{{awake, awoken}, {stopped, out}} {
		if err := p.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if line, err := p.ReadString('\n'); err != nil || line != "woken\n" {
			t.Fatalf("%q, %v", line, err)
		}
		p.Process.Kill()
		p.Wait()
	}
	if _, err := s.Append(ctx, "j", 200, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

// TestPeersAreToldWrites reads what a handle tells others.
func TestPeersAreToldWrites(t *testing.T) {
	dir := t.TempDir()
	l := fakePeer(t, dir)
	s := openTest(t, dir)
	told := make(chan []byte)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		all, _ := io.ReadAll(conn)
		told <- all
	}()
	if _, err := s.Append(t.Context(), "journal", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "cell", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "refused", []byte("x"), "1"); err == nil {
		t.Fatal("a put with a wrong version succeeds")
	}
	if err := s.Cast(t.Context(), "topic", []byte("message")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // after what is to be said
		t.Fatal(err)
	}
	all := string(<-told)
	for _, want := range []string{"journal", "cell", "topic", "message"} {
		if !strings.Contains(all, want) {
			t.Errorf("a handle tells %q, without %q", all, want)
		}
	}
	if strings.Contains(all, "refused") {
		t.Errorf("a handle tells %q, of a write that was refused", all)
	}
}

// TestSlowPeer demands that a peer which never reads holds up nobody, nor takes
// ever more memory.
func TestSlowPeer(t *testing.T) {
	dir := t.TempDir()
	l := fakePeer(t, dir)
	s := openTest(t, dir)
	message := make([]byte, 64<<10)
	if err := s.Cast(t.Context(), "topic", message); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for n := range uint64(3000) {
		if err := s.Cast(t.Context(), "topic", message); err != nil {
			t.Fatal(err)
		}
		if n%10 == 0 {
			if _, err := s.Append(t.Context(), fmt.Sprint("j", n), 0, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.Pending(); n > 4<<20 {
		t.Errorf("%d bytes wait for a peer that does not read", n)
	}
	hearFrom(t, openTest(t, dir), s)
}

// TestStaleSockets are those of processes that were killed.
func TestStaleSockets(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, peersFolder)
	mkdir(t, folder)
	for name, age := range map[string]time.Duration{"old": time.Hour, "young": 0} {
		path := filepath.Join(folder, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(folder, "note"), "no socket at all")
	a, b := openTest(t, dir), openTest(t, dir)
	hearFrom(t, a, b)
	b.Close() // when it has tried to connect to all
	if found := fmt.Sprint(sockets(t, dir)); strings.Contains(found, "old") || !strings.Contains(found, "young") {
		t.Errorf("there are %v; want the old socket removed, and the young one left to its process", found)
	}
	for _, name := range []string{"young", "note"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	if _, err := os.Lstat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of sockets is left, with %v", sockets(t, dir))
	}
}

// TestSocketRemoved demands that handles find each other again, and each other's
// writes until then.
func TestSocketRemoved(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	hearFrom(t, a, b)
	if err := os.RemoveAll(filepath.Join(dir, peersFolder)); err != nil {
		t.Fatal(err)
	}
	c := openTest(t, dir)
	awaitWake(t, a, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for range a.Watch(ctx, "anything") {
		}
	}()
	hearFrom(t, a, c)
}

// TestHeardAgain lets a handle stop listening, which those that know it need not
// notice, and begin again.
func TestHeardAgain(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	hearFrom(t, a, b)
	for deadline := time.Now().Add(time.Minute); len(sockets(t, dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a handle on which nobody listens keeps its socket")
		}
	}
	hearFrom(t, a, b)
}

// TestFoldersOfOthers are no place to tell things.
func TestFoldersOfOthers(t *testing.T) {
	kinds := map[string]func(folder string) error{
		"for everyone": func(folder string) error { return os.Chmod(folder, 0o777) },
		"a link": func(folder string) error {
			other := filepath.Join(t.TempDir(), "other")
			if err := os.Mkdir(other, 0o700); err != nil {
				return err
			}
			if err := os.Remove(folder); err != nil {
				return err
			}
			return os.Symlink(other, folder)
		},
		"a file": func(folder string) error {
			if err := os.Remove(folder); err != nil {
				return err
			}
			return os.WriteFile(folder, nil, 0o600)
		},
	}
	if os.Geteuid() == 0 {
		kinds["another user's"] = func(folder string) error { return os.Chown(folder, 12345, -1) }
		kinds["another user's, given to the group by the folder around"] = func(folder string) error {
			dir := filepath.Dir(folder)
			makeStore(t, filepath.Join(dir, "test.db"))
			return errors.Join(os.Chmod(filepath.Join(dir, "test.db"), 0o660), os.Chmod(dir, 0o777|fs.ModeSetgid), os.Chown(folder, 12345, -1))
		}
	}
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, peersFolder)
			mkdir(t, folder)
			if err := make(folder); err != nil {
				t.Fatal(err)
			}
			a, b := openTest(t, dir), openTest(t, dir)
			awaitWake(t, a, b) // by polling
			if found, _ := os.ReadDir(folder); len(found) > 0 {
				t.Errorf("a handle has made %v in a folder that is not its own", found)
			}
			if info, err := os.Stat(folder); err != nil || !info.IsDir() {
				return
			}
			spy, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "spy"), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer spy.Close()
			if err := b.Cast(t.Context(), "topic", []byte("secret")); err != nil {
				t.Fatal(err)
			}
			awaitWake(t, a, b)
			spy.SetDeadline(time.Now())
			if _, err := spy.Accept(); err == nil {
				t.Error("a handle tells things in a folder that is not its own")
			}
		})
	}
}

// TestModesOfSockets lets those tell things who may write the database.
func TestModesOfSockets(t *testing.T) {
	umask(t, 0o022)
	for mode, want := range map[fs.FileMode]fs.FileMode{0o600: 0o600, 0o640: 0o600, 0o644: 0o600, 0o660: 0o660, 0o666: 0o666} {
		dir := t.TempDir()
		makeStore(t, filepath.Join(dir, "test.db"))
		if err := os.Chmod(filepath.Join(dir, "test.db"), mode); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, dir)
		for range s.Watch(t.Context(), "") {
			break
		}
		found := modes(t, filepath.Join(dir, peersFolder))
		for name, got := range found {
			if got != want {
				t.Errorf("beside a database of mode %o, %s has mode %o, want %o", mode, name, got, want)
			}
		}
		info, err := os.Stat(filepath.Join(dir, peersFolder))
		if wide := want | want>>2&0o111; err != nil || info.Mode().Perm() != wide || len(found) != 1 {
			t.Errorf("beside a database of mode %o there is %v, %v with %v; want mode %o and one socket", mode, info, err, found, wide)
		}
	}
}

// TestPathsOfSockets are long, and lead through links.
func TestPathsOfSockets(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	mkdir(t, deep)
	links := t.TempDir()
	makeStore(t, filepath.Join(deep, "test.db"))
	if err := os.Symlink(filepath.Join(deep, "test.db"), filepath.Join(links, "linked.db")); err != nil {
		t.Fatal(err)
	}
	linked, err := sqlitestore.Open(t.Context(), filepath.Join(links, "linked.db"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer linked.Close()
	s := openTest(t, deep)
	awaitWake(t, s, linked)
	awaitWake(t, linked, s)
	if runtime.GOOS == "linux" { // elsewhere by polling
		hearFrom(t, s, linked)
		hearFrom(t, linked, s)
	}
}

// TestNonsenseFromPeers is survived.
func TestNonsenseFromPeers(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listening := make(chan struct{})
	go func() {
		once := false
		for range a.Watch(ctx, "") {
			if !once {
				once = true
				close(listening)
			}
		}
	}()
	<-listening
	name := sockets(t, dir)[0]
	header := func(kind byte, name, body uint32) []byte {
		h := binary.LittleEndian.AppendUint32([]byte{kind}, name)
		return binary.LittleEndian.AppendUint32(h, body)
	}
	for what, said := range map[string][]byte{
		"nothing":       nil,
		"half a header": {'w', 1, 0},
		"text":          []byte(strings.Repeat("GET / HTTP/1.1\r\n", 1000)),
		"a long name":   header('w', 1<<31, 0),
		"a long body":   header('c', 1, 1<<31),
		"half a body":   append(header('c', 1, 100), "topic"...),
		"newer kinds":   bytes.Repeat(append(header('?', 1, 2), "abc"...), 100),
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, peersFolder, name))
		if err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		conn.Write(said) // it may be cut off
		conn.Close()
	}
	hearFrom(t, a, b)
}
