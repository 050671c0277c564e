package natsstore_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/storetest"
)

func openURL(t *testing.T, url string) *natsstore.Store {
	t.Helper()
	s, err := natsstore.Open(t.Context(), url, natsstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestOutage kills the server and starts it again.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Config{})
	storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
		s, err := natsstore.Open(ctx, natstest.Stream(server.URL(), dir), natsstore.Options{})
		return s, func(on bool) {
			if on {
				server.Kill()
			} else if err := server.Start(); err != nil {
				t.Fatal(err)
			}
		}, err
	})
}

// TestEraseLeavesNoBytes drops a journal and looks for its bytes in the server's files.
func TestEraseLeavesNoBytes(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Config{})
	s := openURL(t, server.URL())
	ctx := t.Context()
	canary, keep := []byte("the-canary-of-this-test"), []byte("what-another-journal-has")
	for n := range uint64(40) {
		for _, j := range []struct {
			name string
			data []byte
		}{{"gone", canary}, {"kept", keep}} {
			if _, err := s.AppendBatch(ctx, store.Batch{Journal: j.name, After: 2 * n, Entries: [][]byte{j.data, bytes.Repeat(j.data, 10)},
				Cells: []store.Write{{Key: j.name + string(rune('a'+n)), Value: []byte("x")}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := filesWith(t, server.Dir, canary); n == 0 {
		t.Fatal("the bytes are not in the server's files before they are erased")
	}
	if err := s.Drop(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	if n := filesWith(t, server.Dir, canary); n > 0 {
		t.Errorf("%d files have bytes of a dropped journal", n)
	}
	if entries, err := store.ReadAll(ctx, s, "kept", 0); err != nil || len(entries) != 80 || !bytes.Equal(entries[0].Data, keep) {
		t.Errorf("the other journal has %d entries, %v", len(entries), err)
	}
}

func filesWith(t *testing.T, dir string, text []byte) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // the server removes files meanwhile
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, text) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLongJournals reads journals of more appends than an index has, from everywhere.
func TestLongJournals(t *testing.T) {
	t.Parallel()
	s := openURL(t, natstest.Stream(natstest.URL(t), t.TempDir()))
	ctx, last := t.Context(), uint64(0)
	for n := range 150 {
		entries := make([][]byte, 1+n%3)
		for i := range entries {
			entries[i] = []byte{byte(last) + byte(i) + 1}
		}
		var err error
		if last, err = s.Append(ctx, "j", last, entries...); err != nil {
			t.Fatal(err)
		}
	}
	for after := range last + 2 {
		want := after
		for e, err := range s.Read(ctx, "j", after) {
			want++
			if err != nil || e.Seq != want || !bytes.Equal(e.Data, []byte{byte(want)}) {
				t.Fatalf("after %d: sequence %d is %v, %v; want %d", after, e.Seq, e.Data, err, want)
			}
		}
		if want != max(after, last) {
			t.Fatalf("reading after %d ended at %d, want %d", after, want, last)
		}
	}
}

// TestLostMessages deletes messages of a journal behind the store's back: the damage is
// found and located.
func TestLostMessages(t *testing.T) {
	t.Parallel()
	name := "t" + nats.NewInbox()[10:]
	s := openURL(t, natstest.With(natstest.URL(t), "stream", name))
	ctx := t.Context()
	for n := range uint64(50) {
		if _, err := s.Append(ctx, "j", n, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	stream := rawStream(t, name)
	if err := stream.DeleteMsg(ctx, 7); err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	var err error
	for e, readErr := range s.Read(ctx, "j", 0) {
		if err = readErr; err == nil {
			seqs = append(seqs, e.Seq)
		}
	}
	bad, ok := errors.AsType[*store.CorruptError](err)
	if !ok || bad.Seq != 7 || !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("Read yielded %v and %v, want six entries and damage at 7", seqs, err)
	}
	if entries, err := store.ReadAll(ctx, s, "j", 7); err != nil || len(entries) != 43 {
		t.Errorf("after the damage there are %d entries, %v; want 43", len(entries), err)
	}
	if err := s.Drop(ctx, "j"); err != nil {
		t.Errorf("a damaged journal cannot be dropped: %v", err)
	}
}

func rawStream(t *testing.T, name string) jetstream.Stream {
	t.Helper()
	nc, err := nats.Connect(natstest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestWakesWithoutPolling follows a journal that another handle writes, by news only.
func TestWakesWithoutPolling(t *testing.T) {
	natsstore.StopPolling(t)
	url := natstest.Stream(natstest.URL(t), t.TempDir())
	reader, writer := openURL(t, url), openURL(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, wrote := uint64(0), uint64(0)
	heard := make(chan struct{}, 1)
	go store.Hear(ctx, reader, "ready", func([]byte) {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	for range store.Watch(ctx, reader, "j") {
		for got := false; wrote == 0 && !got; { // the subscription of Watch is before that of a message that arrives
			if err := store.Cast(ctx, writer, "ready", nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-heard:
				got = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		for e, err := range reader.Read(ctx, "j", seen) {
			if err != nil {
				t.Fatal(err)
			}
			seen = e.Seq
		}
		if seen == 20 {
			return
		}
		if seen == wrote {
			var err error
			if wrote, err = writer.Append(ctx, "j", seen, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("no wake-up came after entry %d", seen)
}
