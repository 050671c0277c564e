package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// logged is a store that survives its process: a memory, and a file to which
// each accepted write goes as one record before it is acknowledged. Flaws
// make it break a promise.
type logged struct {
	*memstore.Store
	mu    sync.Mutex
	file  *os.File
	flaw  string
	queue []byte            // of the flaw that acknowledges what it has not written
	ended map[string]uint64 // where the journals end
}

// pack makes a record: its length, and fields with theirs. The first is the
// name: of a journal if entries follow and of a dropped one if it begins with a
// dash, of a cell if it begins with a dot and of a deleted one if nothing
// follows. If it is a plus, the fields are the records of a batch.
func pack(name string, fields ...[]byte) []byte {
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(body, name...)
	for _, f := range fields {
		body = binary.AppendUvarint(body, uint64(len(f)))
		body = append(body, f...)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// unpack takes a record off data, and returns no fields if it is torn.
func unpack(data []byte) (fields [][]byte, size int) {
	if len(data) < 4 {
		return nil, 0
	}
	size = 4 + int(binary.BigEndian.Uint32(data))
	if len(data) < size {
		return nil, 0
	}
	for body := data[4:size]; len(body) > 0; {
		n, w := binary.Uvarint(body)
		fields = append(fields, body[w:w+int(n)])
		body = body[w+int(n):]
	}
	return fields, size
}

func openLogged(dir, flaw string) (store.Store, error) {
	path := filepath.Join(dir, "log")
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l := &logged{Store: memstore.New(), flaw: flaw, ended: map[string]uint64{}}
	if l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	if flaw == "rewrites its file when it opens" {
		l.file.Truncate(0)
		slowly(20 * time.Millisecond)
	}
	whole := 0 // behind it is what a kill tore
	for {
		fields, size := unpack(data[whole:])
		if fields == nil {
			break
		}
		if err := l.replay(string(fields[0]), fields[1:]); err != nil {
			return nil, err
		}
		whole += size
	}
	switch {
	case flaw == "refuses a torn tail" && whole < len(data):
		return nil, fmt.Errorf("torn tail of %d bytes", len(data)-whole)
	case flaw == "rewrites its file when it opens":
		_, err = l.file.Write(data[:whole])
		return l, err
	}
	return l, l.file.Truncate(int64(whole))
}

func (l *logged) replay(name string, fields [][]byte) (err error) {
	if name == "+" {
		for _, record := range fields {
			parts, _ := unpack(record)
			if err := l.replay(string(parts[0]), parts[1:]); err != nil {
				return err
			}
		}
		return nil
	}
	if journal, ok := strings.CutPrefix(name, "-"); ok {
		return l.Store.Drop(context.Background(), journal)
	}
	if key, ok := strings.CutPrefix(name, "."); ok && len(fields) == 0 {
		cell, err := l.Store.Get(context.Background(), key)
		if err != nil {
			return nil // it is of the store that forgets cells
		}
		return l.Store.Delete(context.Background(), key, cell.Version)
	}
	if key, ok := strings.CutPrefix(name, "."); ok {
		_, err = store.Update(context.Background(), l.Store, key, func(store.Cell) ([]byte, error) { return fields[0], nil })
		return err
	}
	l.ended[name], err = l.Store.Append(context.Background(), name, l.ended[name], fields...)
	return err
}

func (l *logged) log(name string, fields ...[]byte) error { return l.write(pack(name, fields...)) }

func (l *logged) write(record []byte) error {
	if l.flaw == "acknowledges before it writes" {
		if l.queue = append(l.queue, record...); len(l.queue) < 20_000 {
			return nil
		}
		record, l.queue = l.queue, nil
	}
	if l.flaw == "refuses a torn tail" {
		half := len(record) / 2
		if _, err := l.file.Write(record[:half]); err != nil {
			return err
		}
		slowly(200 * time.Microsecond)
		record = record[half:]
	}
	if _, err := l.file.Write(record); err != nil {
		return err
	}
	return l.file.Sync()
}

// slowly gives a kill the time to come between two writes.
func slowly(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		runtime.Gosched()
	}
}

func (l *logged) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.ended[journal]; l.flaw == "takes any after" && after < end {
		after = end
	}
	last, err := l.Store.Append(ctx, journal, after, entries...)
	if err != nil {
		if l.flaw == "writes what it refuses" && l.ended[journal] > 0 {
			l.log(journal, entries...)
		}
		return 0, err
	}
	l.ended[journal] = last
	switch l.flaw {
	case "cuts batches":
		for _, e := range entries {
			if err := l.log(journal, e); err != nil {
				return 0, err
			}
			slowly(200 * time.Microsecond)
		}
		return last, nil
	case "loses one in a hundred":
		if last%100 == 99 {
			return last, nil
		}
	case "changes a byte":
		if last%100 == 99 {
			entries[0] = append(bytes.Clone(entries[0]), '.')
		}
	case "writes twice":
		if last%100 == 99 {
			l.log(journal, entries...)
		}
	}
	return last, l.log(journal, entries...)
}

func (l *logged) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, err := l.Store.AppendBatch(ctx, b)
	if err != nil {
		return 0, err
	}
	l.ended[b.Journal] = last
	records := [][]byte{pack(b.Journal, b.Entries...)}
	for _, w := range b.Cells {
		records = append(records, pack("."+w.Key, w.Value))
	}
	switch l.flaw {
	case "forgets the cells of batches":
		records = records[:1]
	case "writes the cells of batches first", "writes the cells of batches last":
		if l.flaw == "writes the cells of batches first" {
			slices.Reverse(records)
		}
		for _, r := range records {
			if err := l.write(r); err != nil {
				return 0, err
			}
			slowly(200 * time.Microsecond)
		}
		return last, nil
	}
	return last, l.log("+", records...)
}

func (l *logged) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	version, err := l.Store.Put(ctx, key, value, prev)
	if err != nil || l.flaw == "forgets cells" {
		return version, err
	}
	return version, l.log("."+key, value)
}

func (l *logged) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if l.flaw == "keeps unsynced cells in memory" {
		return l.Store.Put(ctx, key, value, prev)
	}
	return l.Put(ctx, key, value, prev)
}

func (l *logged) Drop(ctx context.Context, journal string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.Store.Drop(ctx, journal)
	if err != nil || l.flaw == "forgets drops" {
		return err
	}
	return l.log("-" + journal)
}

func (l *logged) Delete(ctx context.Context, key string, prev store.Version) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.Store.Delete(ctx, key, prev)
	if err != nil || l.flaw == "forgets deletes" {
		return err
	}
	return l.log("." + key)
}

func (l *logged) Close() error {
	if l.flaw == "acknowledges before it writes" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.file.Write(l.queue)
	}
	l.Store.Close()
	return l.file.Close()
}

func TestKill(t *testing.T) {
	Kill(t, func(_ context.Context, dir string) (store.Store, error) { return openLogged(dir, "") }, KillOptions{Kills: 25, Acks: 1500})
}

func TestKillCatches(t *testing.T) {
	for flaw, want := range map[string]string{
		"acknowledges before it writes":     "is gone|was acknowledged",
		"loses one in a hundred":            "is gone|was appended behind",
		"changes a byte":                    "which no one wrote",
		"writes twice":                      "for the second time",
		"cuts batches":                      "as a whole or not at all|adjacent and whole",
		"forgets the cells of batches":      "and the cell: false",
		"writes the cells of batches first": "and the cell: true",
		"writes the cells of batches last":  "and the cell: false",
		"takes any after":                   "would both win|as its end, want",
		"writes what it refuses":            "a conflict writes nothing",
		"forgets cells":                     "want the value that was acknowledged",
		"keeps unsynced cells in memory":    "Get\\(\"loose-|cell \"loose-",
		"forgets drops":                     "its Drop was acknowledged",
		"forgets deletes":                   "its Delete was acknowledged",
		"refuses a torn tail":               "does not open",
		"rewrites its file when it opens":   "is gone|was appended behind|was acknowledged",
	} {
		t.Run(flaw, func(t *testing.T) {
			failed, log := record(t, func(tb testing.TB) {
				kill(tb, func(_ context.Context, dir string) (store.Store, error) { return openLogged(dir, flaw) }, nil, KillOptions{Kills: 100, Acks: 5000})
			})
			if !failed || !regexp.MustCompile(want).MatchString(log) {
				t.Errorf("Kill failed: %v, want a failure that says %q; it said:\n%s", failed, want, log)
			}
		})
	}
}

func TestKillTwice(t *testing.T) {
	killing.Store(t.Name(), true)
	defer killing.Delete(t.Name())
	failed, log := record(t, func(tb testing.TB) { kill(tb, openMemory, nil, KillOptions{}.sized()) })
	if !failed || !strings.Contains(log, "run each in a subtest of its own") {
		t.Errorf("a second Kill in a test failed: %v; it said:\n%s", failed, log)
	}
}

func TestKillID(t *testing.T) {
	for call := range 200 {
		id := killID{life: 7, writer: 3, call: call, index: call % 5, count: 5}
		if got, ok := parseKillID(id.bytes()); !ok || got != id {
			t.Fatalf("the id of %.60q is %+v (%v), want %+v", id.bytes(), got, ok, id)
		}
	}
	for _, bad := range []string{"", "[", "[1,2,3,4", "x[1,2,3,4,5]", "{}"} {
		if id, ok := parseKillID([]byte(bad)); ok {
			t.Errorf("%q has the id %+v", bad, id)
		}
	}
}

func TestExactly(t *testing.T) {
	if got, want := exactly("TestA/b+c/d#01"), `^TestA$/^b\+c$/^d#01$`; got != want {
		t.Errorf("exactly = %s, want %s", got, want)
	}
}
