package backup_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/powercut"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/storetest"
)

// TestFullTarget backs a store up to a disk that is too small, while it is written to.
func TestFullTarget(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		mnt := t.TempDir()
		if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=256k"); err != nil {
			t.Skipf("needs the right to mount: %v", err)
		}
		defer func() { kit.Unmount(t, mnt) }()
		s := openAt(t, engine, filepath.Join(t.TempDir(), "store"))
		ctx, stop := context.WithCancel(t.Context())
		l := &load{s: s}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				if err := l.write(ctx, w); !errors.Is(err, context.Canceled) {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		for l.acked[0].Load() < 200 {
			if _, err := s.Put(ctx, "wait", nil, ""); err != nil && !errors.Is(err, store.ErrConflict) {
				t.Fatal(err)
			}
		}
		whole := filepath.Join(t.TempDir(), "whole")
		_, err := backup.Take(ctx, s, whole)
		kit.NoErr(t, err)
		var stream bytes.Buffer
		kit.NoErr(t, backup.Send(ctx, s, &stream, func(*backup.Manifest) {}))
		for range 3 {
			_, err := backup.Take(ctx, s, filepath.Join(mnt, "b"))
			kit.WantErr(t, "a backup to a full disk", err, store.ErrFull)
			wantNothingIn(t, mnt)
			_, err = backup.Receive(ctx, bytes.NewReader(stream.Bytes()), filepath.Join(mnt, "b"))
			kit.WantErr(t, "a backup from a server to a full disk", err, store.ErrFull)
			wantNothingIn(t, mnt)
			path := filepath.Join(mnt, "s")
			_, err = backup.Restore(ctx, whole, engine+":"+path, path, open)
			kit.WantErr(t, "a store on a full disk", err, store.ErrFull)
			wantNothingIn(t, mnt)
		}
		stop()
		all.Wait()
		var least [writers]int64
		for w := range writers {
			least[w] = l.acked[w].Load()
		}
		kit.NoErr(t, check(t.Context(), s, least))
	})
}

// TestPowerCut cuts the power of the disk with the store and its backups. Backups that
// were complete are whole, and restore what was acknowledged before they began,
// whatever became of the store.
func TestPowerCut(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		var disk storetest.Disk
		whole := 0
		for cut := range kit.Sized(1, 4, 60) {
			if cut%10 == 0 { // or the store and what became of its backups would fill it
				disk = powercut.New(t)
			}
			dir := disk.Dir()
			begun, ended := killed(t, engine, dir, disk.Cut)
			kit.NoErr(t, disk.Restore())
			for _, name := range ended {
				if _, err := backup.Verify(t.Context(), filepath.Join(dir, name)); err != nil {
					t.Errorf("a backup that was complete: %v", err)
				}
			}
			for name, least := range begun {
				at := filepath.Join(dir, name)
				if _, err := os.Stat(at); err != nil {
					continue
				}
				if err := check(t.Context(), restored(t, engine, at), least); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				whole++
				kit.NoErr(t, os.RemoveAll(at))
			}
		}
		if whole == 0 {
			t.Error("no backup was complete")
		}
	})
}
