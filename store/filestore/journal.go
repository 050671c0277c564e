package filestore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"

	"github.com/perdure/perdure/store"
)

// journal is what the engine knows of one journal.
type journal struct {
	name  string
	place place
	path  string
	salt  uint32
	body  int64 // where the entries begin

	write sync.Mutex    // held while the file is loaded or changed
	file  *os.File      // open for appending, or nil: see openFiles
	open  *list.Element // its place there
	slot  int64         // which head line is written next; guarded by write

	mu   sync.RWMutex // guards tail; also held while the file is read or replaced
	tail tail
}

// tail describes the part of a journal that is known to be durable, which is all
// that readers see.
type tail struct {
	known   bool
	dropped bool
	seq     uint64 // of the last entry
	end     int64  // where its line ends
	marks   []mark
	bad     *store.CorruptError // what is wrong after seq, if anything
}

// mark records where the line after entry seq begins, so that a read from the
// middle need not start at the top.
type mark struct {
	seq uint64
	at  int64
}

// marked adds a mark if the last one is far away.
func (t *tail) marked() {
	if n := len(t.marks); n == 0 || t.end-t.marks[n-1].at >= chunk {
		t.marks = append(t.marks, mark{t.seq, t.end})
	}
}

// seek returns the last mark at or before sequence after.
func (t *tail) seek(after uint64) mark {
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].seq > after })
	if i == 0 {
		return mark{}
	}
	return t.marks[i-1]
}

// journal returns the journal called name, or nil if it does not exist and is not
// to be created; names that are only asked about are not remembered.
func (e *engine) journal(name string, create bool) (*journal, error) {
	e.mu.Lock()
	j := e.loaded[name]
	e.mu.Unlock()
	if j != nil {
		return j, nil
	}
	p := placeOf(name)
	j = &journal{name: name, place: p, path: e.journals.path(p), salt: saltOf(name)}
	j.body = int64(len(headerOf(name))) + 2*headLen
	if !create {
		if _, err := os.Stat(j.path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("filestore: journal %q: %w; check the folder's permissions", name, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.loaded[name]; other != nil {
		return other, nil
	}
	e.loaded[name] = j
	return j, nil
}

func (e *engine) append(ctx context.Context, name string, after uint64, entries [][]byte) (uint64, error) {
	j, err := e.journal(name, after == 0)
	if err != nil {
		return 0, err
	}
	if j == nil {
		return 0, store.NotAtEnd(name, after, 0)
	}
	j.write.Lock()
	defer j.write.Unlock()
	t, err := e.load(j)
	switch {
	case err != nil:
		return 0, err
	case t.dropped:
		return 0, store.WasDropped(name)
	case t.bad != nil:
		return 0, t.bad
	case t.seq != after:
		return 0, store.NotAtEnd(name, after, t.seq)
	}
	if err := e.mayWrite(ctx); err != nil {
		return 0, err
	}
	if after == 0 {
		err = e.create(j, entries)
	} else {
		err = e.extend(j, t, entries)
	}
	return after + uint64(len(entries)), err
}

// create creates the journal's file with its first entries in it, so that it
// exists with all of them or not at all.
func (e *engine) create(j *journal, entries [][]byte) error {
	if err := e.journals.settle(j.place.shard, true); err != nil {
		return err
	}
	body := j.render(0, entries)
	h := head{seq: uint64(len(entries)), end: j.body + int64(len(body))}
	content := headerOf(j.name)
	content = appendHead(content, j.salt, h)
	content = appendHead(content, j.salt, h)
	temp, err := e.stage(append(content, body...))
	e.keep(j.path)
	if err == nil {
		err = e.install(temp, j.path)
	}
	if err != nil {
		return e.poison(err, "creating journal %q", j.name)
	}
	e.journals.index.add(j.name, j.path)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tail.marks = []mark{{0, j.body}}
	j.tail.seq, j.tail.end = h.seq, h.end
	return nil
}

// extend appends to the journal's file. The head line is written after the sync,
// so that it never claims more than is synced; the next sync takes it to the disk.
func (e *engine) extend(j *journal, t tail, entries [][]byte) error {
	f, err := e.files.get(j)
	if err != nil {
		return fmt.Errorf("filestore: append to journal %q: %w; check the file's permissions and the number of open files", j.name, err)
	}
	e.keepEnd(j.path, t.end)
	lines := j.render(t.seq, entries)
	h := head{seq: t.seq + uint64(len(entries)), end: t.end + int64(len(lines))}
	err = e.disk.write(f, lines, t.end)
	if err == nil {
		err = e.disk.sync(f)
	}
	if err == nil {
		err = e.writeHead(j, f, h)
	}
	if err != nil {
		return e.poison(err, "appending to journal %q", j.name)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tail.bad == nil {
		j.tail.seq, j.tail.end = h.seq, h.end
		j.tail.marked()
	}
	return nil
}

func (j *journal) render(after uint64, entries [][]byte) []byte {
	size := 0
	for _, data := range entries {
		size += len(data) + 96
	}
	b := make([]byte, 0, size)
	for i, data := range entries {
		n := uint64(i) + 1
		b = appendEntry(b, j.salt, entry{seq: after + n, part: n, of: uint64(len(entries))}, data)
	}
	return b
}

// writeHead overwrites the older of the two head lines.
func (e *engine) writeHead(j *journal, f *os.File, h head) error {
	at := j.body - (2-j.slot)*headLen
	j.slot = 1 - j.slot
	return e.disk.write(f, appendHead(nil, j.salt, h), at)
}

// view returns the journal called name and its current tail, which is empty if the
// journal does not exist.
func (e *engine) view(name string) (*journal, tail, error) {
	j, err := e.journal(name, false)
	if err != nil || j == nil {
		return j, tail{}, err
	}
	t := j.now()
	if !t.known {
		j.write.Lock()
		defer j.write.Unlock()
		t, err = e.load(j)
	}
	return j, t, err
}

func (j *journal) now() tail {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.tail
}

// read yields the entries after the given sequence, up to the tail's end. It calls
// usable before each of them.
func (j *journal) read(t tail, after uint64, usable func() error, yield func(store.Entry, error) bool) {
	if t.dropped {
		yield(store.Entry{}, store.WasDropped(j.name))
		return
	}
	if t.seq <= after && t.bad == nil {
		return
	}
	from := t.seek(after)
	l := &lines{read: j.readAt, next: from.at, end: t.end}
	for seq := from.seq; seq < t.seq; {
		if err := usable(); err != nil {
			yield(store.Entry{}, err)
			return
		}
		line, at, err := l.line()
		if err != nil && !errors.Is(err, io.EOF) {
			yield(store.Entry{}, err)
			return
		}
		e, why := parseEntry(line, j.salt)
		seq++
		if why == "" && e.seq != seq {
			why = fmt.Sprintf("found sequence %d where %d belongs", e.seq, seq)
		}
		if why == "" && seq <= after {
			continue
		}
		data, ok := dataOf(e.member)
		if why == "" && !ok {
			why = "the entry's data cannot be decoded"
		}
		if why != "" {
			yield(store.Entry{}, j.rotten(seq, at, why))
			return
		}
		if !yield(store.Entry{Seq: seq, Data: data}, nil) {
			return
		}
	}
	if t.bad != nil {
		yield(store.Entry{}, t.bad)
	}
}

// readAt reads from the journal's file. It does not keep the file open: a loop
// over Read may pause for a long time, and the file may be replaced meanwhile.
func (j *journal) readAt(b []byte, at int64) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.tail.dropped {
		return store.WasDropped(j.name)
	}
	f, err := os.Open(j.path)
	if err != nil {
		return fmt.Errorf("filestore: read journal %q: %w", j.name, err)
	}
	defer f.Close()
	n, err := f.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("filestore: read journal %q: %w", j.name, err)
	}
	clear(b[n:]) // if the file has become shorter, this shows as damaged lines
	return nil
}

// rotten notes damage found after the journal was loaded.
func (j *journal) rotten(seq uint64, at int64, why string) error {
	if j.tombstoned() { // by a handle that was opened after this one was poisoned
		return store.WasDropped(j.name)
	}
	bad := j.corrupt(seq, at, why)
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.tail.dropped && (j.tail.bad == nil || seq < j.tail.bad.Seq) {
		j.tail.seq, j.tail.end, j.tail.bad = seq-1, at, bad
	}
	return bad
}

// tombstoned reports whether the journal's file is its tombstone.
func (j *journal) tombstoned() bool {
	tombstone := tombstoneOf(j.place.hash)
	top, err := topOf(j.path, int64(len(tombstone))+1)
	return err == nil && string(top) == string(tombstone)
}

func (j *journal) corrupt(seq uint64, at int64, why string) *store.CorruptError {
	return &store.CorruptError{Journal: j.name, Seq: seq, Where: fmt.Sprintf("%s, offset %d", j.path, at), Reason: why}
}

// drop replaces the journal's file with a tombstone in one move: the entries
// disappear and the name is taken at the same moment.
func (e *engine) drop(ctx context.Context, name string) error {
	j, err := e.journal(name, true)
	if err != nil {
		return err
	}
	j.write.Lock()
	defer j.write.Unlock()
	if err := e.journals.settle(j.place.shard, true); err != nil {
		return err
	}
	if j.tombstoned() {
		return nil
	}
	if err := e.mayWrite(ctx); err != nil {
		return err
	}
	temp, err := e.stage(tombstoneOf(j.place.hash))
	if err != nil {
		return e.poison(err, "dropping journal %q", name)
	}
	e.keep(j.path)
	e.files.close(j)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := e.install(temp, j.path); err != nil {
		return e.poison(err, "dropping journal %q", name)
	}
	j.tail = tail{known: true, dropped: true}
	e.journals.index.remove(name, j.path)
	return nil
}

// names returns up to limit journals after the given name, and the damage of those
// whose names are unknown.
func (e *engine) names(after string, limit int) (names []string, damage, err error) {
	x := &e.journals.index
	err = x.load(func() ([]string, map[string]error, error) {
		return e.journals.scan("name", func(base string, top []byte) bool {
			hash := base[max(0, len(base)-32):]
			return string(top) == string(tombstoneOf(hash))
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("filestore: list the journals: %w", err)
	}
	return x.behind("", after, limit), x.damage(""), nil
}
