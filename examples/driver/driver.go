//go:build darwin || freebsd || linux || netbsd || openbsd

package driver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/perdure/perdure/store"
)

func init() { store.Register("log", Open) }

// record is a line of the log and, with the entries it keeps, a journal or cell.
type record struct {
	Key     []byte        // "j" or "c" before the name: journals and cells share no names
	Keep    int           // how many of the earlier entries stay
	Data    [][]byte      // the entries behind those; a cell has one, its value
	Gone    bool          // dropped or deleted
	version store.Version // of a cell; "" if there is none
}

func (r record) cell() store.Cell {
	return store.Cell{Key: string(r.Key[1:]), Value: bytes.Clone(r.Data[0]), Version: r.version}
}

type logStore struct {
	mu             sync.Mutex
	log            *os.File
	end            int64 // how far the log is read
	items          map[string]record
	closed, poison error // why this handle does no more
}

// Open opens the store in a folder that exists, by its URL or path.
func Open(_ context.Context, url string) (store.Store, error) {
	dir := strings.TrimPrefix(url, "log:")
	folder, err1 := os.Open(dir)
	log, err2 := os.OpenFile(dir+"/store.log", os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err := cmp.Or(err1, err2, folder.Sync(), folder.Close()); err != nil { // a new file lasts when its folder is synced
		log.Close()
		return nil, fmt.Errorf("driver: open a store in %q, which must be a folder: %w", dir, err)
	}
	return &logStore{log: log, items: map[string]record{}}, nil
}

func (s *logStore) Durability() store.Durability { return store.Power }

func (s *logStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = store.ErrClosed
	s.log.Close() // all is synced, so an error says nothing
	return nil
}

// do looks at a journal or cell, writes next, if that is given and check agrees,
// and returns what is there then. No one else is at the log meanwhile.
func (s *logStore) do(ctx context.Context, bad error, key string, next *record, check func(now record) error) (record, error) {
	s.mu.Lock() // for the goroutines of this handle; the file's lock is for other handles
	defer s.mu.Unlock()
	if err := cmp.Or(s.closed, ctx.Err(), bad); err != nil {
		return record{}, err
	}
	if err := syscall.Flock(int(s.log.Fd()), syscall.LOCK_EX); err != nil {
		return record{}, fmt.Errorf("driver: lock %s: %w", s.log.Name(), err)
	}
	defer syscall.Flock(int(s.log.Fd()), syscall.LOCK_UN)
	err := s.catchUp()
	if err == nil {
		err = check(s.items[key])
	}
	if err == nil && next != nil {
		next.Key = []byte(key)
		body, _ := json.Marshal(next) // bytes and numbers can always be
		_, s.poison = s.log.Write(frame(body))
		err = s.catchUp() // reads the line back, and syncs it
	}
	if s.poison != nil {
		return record{}, fmt.Errorf("%w: %w; close the store and open it again", store.ErrPoisoned, s.poison)
	}
	return s.items[key], err
}

func (s *logStore) catchUp() error { // takes up the lines that are new in the log
	tail, err := io.ReadAll(io.NewSectionReader(s.log, s.end, 1<<62))
	if err = cmp.Or(s.poison, err); err != nil || len(tail) == 0 {
		return err
	}
	for line := range bytes.Lines(tail[:bytes.LastIndexByte(tail, '\n')+1]) { // behind it, half a line of a writer that died
		var r record
		body := line[min(9, len(line)-1) : len(line)-1] // behind a checksum of 8 digits and a space
		if !bytes.Equal(line, frame(body)) || json.Unmarshal(body, &r) != nil {
			return &store.CorruptError{Where: fmt.Sprint(s.log.Name(), " at byte ", s.end), Reason: "a line is not as it was written"}
		}
		s.end += int64(len(line))
		r.Data = slices.Concat(s.items[string(r.Key)].Data[:r.Keep], r.Data)
		if !r.Gone {
			r.version = store.Version(fmt.Sprint(s.end))
		}
		s.items[string(r.Key)] = r
	}
	s.poison = cmp.Or(s.log.Truncate(s.end), s.log.Sync()) // the writer may have died before it could
	return s.poison
}

func frame(body []byte) []byte { return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(body), body) }

func when(refused bool, err error) error {
	if refused {
		return err
	}
	return nil
}

func (s *logStore) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	now, err := s.do(ctx, store.CheckAppend(journal, entries), "j"+journal, &record{Keep: int(after), Data: entries}, func(now record) error {
		last := uint64(len(now.Data))
		return cmp.Or(when(now.Gone, store.WasDropped(journal)), when(last != after, store.NotAtEnd(journal, after, last)))
	})
	return uint64(len(now.Data)), err
}

func (s *logStore) Drop(ctx context.Context, journal string) error {
	_, err := s.do(ctx, store.CheckName("journal", journal), "j"+journal, &record{Gone: true}, func(record) error { return nil })
	return err
}

func (s *logStore) Get(ctx context.Context, key string) (store.Cell, error) {
	now, err := s.do(ctx, store.CheckName("cell", key), "c"+key, nil, func(now record) error { return when(now.version == "", store.NoCell(key)) })
	if err != nil {
		return store.Cell{}, err
	}
	return now.cell(), nil
}

func (s *logStore) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	now, err := s.do(ctx, store.CheckPut(key, value), "c"+key, &record{Data: [][]byte{value}}, func(now record) error {
		return when(now.version != prev, store.NotVersion(key, prev, now.version))
	})
	return now.version, err
}

func (s *logStore) Delete(ctx context.Context, key string, prev store.Version) error {
	_, err := s.do(ctx, store.CheckDelete(key, prev), "c"+key, &record{Gone: true}, func(now record) error {
		return when(now.version != prev, store.NotVersion(key, prev, now.version))
	})
	return err
}

func (s *logStore) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		now, err := s.do(ctx, store.CheckName("journal", journal), "j"+journal, nil, func(now record) error { return when(now.Gone, store.WasDropped(journal)) })
		for i := after; i < uint64(len(now.Data)) && yield(store.Entry{Seq: i + 1, Data: bytes.Clone(now.Data[i])}, nil); i++ {
		}
		if err != nil {
			yield(store.Entry{}, err)
		}
	}
}

func (s *logStore) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return list(ctx, s, "j", "j"+after, func(r record) string { return string(r.Key[1:]) })
}

func (s *logStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return list(ctx, s, "c"+prefix, "c"+after, record.cell)
}

func list[T any](ctx context.Context, s *logStore, prefix, after string, as func(record) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var found []T
		_, err := s.do(ctx, nil, "", nil, func(record) error { // now, when the loop begins
			for _, key := range slices.Sorted(maps.Keys(s.items)) {
				if key > after && strings.HasPrefix(key, prefix) && !s.items[key].Gone {
					found = append(found, as(s.items[key]))
				}
			}
			return nil
		})
		for i := 0; i < len(found) && yield(found[i], nil); i++ {
		}
		if err != nil {
			yield(*new(T), err)
		}
	}
}
