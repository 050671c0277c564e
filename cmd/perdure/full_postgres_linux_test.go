package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
)

// TestServerWhosePostgresIsFull fills the disk with the WAL of PostgreSQL under a
// server, so that PostgreSQL stops: the server is not ready until that is up again,
// and then goes on.
func TestServerWhosePostgresIsFull(t *testing.T) {
	top, err := os.MkdirTemp("", "perdure-full-") // PostgreSQL's user does not get into t.TempDir
	kit.NoErr(t, errors.Join(err, os.Chmod(top, 0o755)))
	t.Cleanup(func() { kit.NoErr(t, os.RemoveAll(top)) })
	disk, data := filepath.Join(top, "disk"), filepath.Join(top, "data")
	wal := filepath.Join(disk, "wal")
	kit.NoErr(t, errors.Join(os.Mkdir(disk, 0o755), os.Mkdir(data, 0o700)))
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m,mode=755"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { kit.Unmount(t, disk) })
	kit.NoErr(t, os.Mkdir(wal, 0o700))
	postgres := pgtest.StartOn(t, data, wal)
	p := launch(t, t.TempDir(), nil, "dev", "--addr", "127.0.0.1:0", "--store", postgres.URL)
	t.Cleanup(func() { p.signal(syscall.SIGTERM).ends(0) })
	line := p.until("Perdure serves http://")
	address, _, _ := strings.Cut(line[strings.Index(line, "http://"):], ",")
	thread := begin(t, address)
	run := status(t, address, thread, perdure.Suspended)
	ready(t, address, true)

	conn, err := pgx.Connect(t.Context(), postgres.URL)
	kit.NoErr(t, err)
	defer conn.Close(t.Context())
	kit.NoErr(t, os.WriteFile(filepath.Join(disk, "filler"), nil, 0o600))
	filler, err := os.OpenFile(filepath.Join(disk, "filler"), os.O_WRONLY|os.O_APPEND, 0)
	kit.NoErr(t, err)
	defer filler.Close()
	for tries := 0; err == nil; tries++ {
		if tries == 500 {
			t.Fatal("PostgreSQL writes on a full disk")
		}
		for chunk := make([]byte, 1<<20); len(chunk) > 0; {
			if n, err := filler.Write(chunk); n == 0 && err != nil {
				chunk = chunk[:len(chunk)/2]
			}
		}
		_, err = conn.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'full', repeat('x', 200000))")
	}
	ready(t, address, false)
	kit.NoErr(t, os.Remove(filler.Name()))
	kit.NoErr(t, filler.Close())
	for tries := 0; ; tries++ {
		if tries == 2000 {
			t.Fatalf("it does not become ready; PostgreSQL says\n%s", postgres.Log())
		}
		if status, _ := get(t, address+"/readyz", ""); status == 200 {
			break
		}
		if postgres.Ctl("status") != nil { // it has given up, as it had no space to recover
			_ = postgres.Ctl("start")
		}
		<-time.After(20 * time.Millisecond) // it is another process
	}
	approve(t, address, run)
	status(t, address, thread, perdure.Succeeded)
}
