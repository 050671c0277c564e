package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// load verifies the journal's file on first use, repairs what a crash may have
// left, and returns its tail. The caller holds the journal's write lock.
func (e *engine) load(j *journal) (tail, error) {
	if t := j.now(); t.known {
		return t, nil
	}
	if err := e.journals.settle(j.place.shard, false); err != nil {
		return tail{}, err
	}
	found, err := e.inspect(j)
	if err == nil {
		err = e.repair(j, &found)
	}
	if err != nil {
		return tail{}, err
	}
	found.tail.known = true
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tail = found.tail
	return j.tail, nil
}

// finding is what a journal's file holds.
type finding struct {
	tail tail
	head head
	size int64
}

// inspect reads and verifies the journal's file.
func (e *engine) inspect(j *journal) (finding, error) {
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return finding{}, nil
	}
	if err != nil {
		return finding{}, fmt.Errorf("filestore: open journal %q: %w; check the file's permissions", j.name, err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return finding{}, fmt.Errorf("filestore: read journal %q: %w", j.name, err)
	}
	top := make([]byte, min(j.body, size))
	if _, err := f.ReadAt(top, 0); err != nil && !errors.Is(err, io.EOF) {
		return finding{}, fmt.Errorf("filestore: read journal %q: %w", j.name, err)
	}
	if string(top) == string(tombstoneOf(j.place.hash)) {
		return finding{tail: tail{dropped: true}}, nil
	}
	found := finding{size: size}
	header := headerOf(j.name)
	h, headOK := j.heads(top)
	found.head = h

	s := &scan{journal: j, head: h, tail: tail{end: j.body, marks: []mark{{0, j.body}}}}
	l := &lines{next: min(j.body, size), end: size, read: func(b []byte, at int64) error {
		_, err := f.ReadAt(b, at)
		return err
	}}
	if err := s.run(l); err != nil {
		return finding{}, fmt.Errorf("filestore: read journal %q: %w", j.name, err)
	}
	found.tail = s.tail
	bad := func(seq uint64, at int64, why string) {
		found.tail.bad = j.corrupt(seq, at, why)
	}
	switch {
	case size < j.body:
		bad(1, size, "the file ends inside its first lines")
	case !headOK:
		bad(s.tail.seq+1, int64(len(header)), "both head lines are damaged, so entries may be missing at the end")
	case s.tail.seq < h.seq:
		if s.why == "" {
			s.why = fmt.Sprintf("the file ends here, but entry %d at offset %d had been written", h.seq, h.end)
		}
		found.tail.seq, found.tail.end = s.line, s.at
		bad(s.line+1, s.at, s.why)
	case !s.headSeen:
		bad(s.tail.seq+1, int64(len(header)), fmt.Sprintf("according to the head lines entry %d ends at offset %d, but it does not", h.seq, h.end))
	case string(top[:min(len(header), len(top))]) != string(header):
		bad(s.tail.seq+1, 0, "the header line is damaged, but the entries are not")
	case s.later:
		bad(s.tail.seq+1, s.at, s.why+", and entries of a later append follow")
	}
	return found, nil
}

// heads returns the better of the two head lines, and chooses the other to be
// written next. If one of them is torn, the other is as it was before.
func (j *journal) heads(top []byte) (best head, ok bool) {
	for slot := range int64(2) {
		from := j.body - (2-slot)*headLen
		if int64(len(top)) < from+headLen {
			break
		}
		h, good := parseHead(top[from:from+headLen], j.salt)
		if good && (!ok || h.seq > best.seq) {
			best, ok = h, true
			j.slot = 1 - slot
		}
	}
	return best, ok
}

// scan goes through the lines of a journal up to the first one that cannot follow
// those before it.
type scan struct {
	journal *journal
	head    head

	tail     tail   // of the whole appends
	headSeen bool   // an append ends where the head says
	line     uint64 // the sequence of the last good line, of a whole append or not
	at       int64  // where it ends
	why      string // what is wrong with the next one; "" at the end of the file
	later    bool   // after it come entries that do not belong to the next append
}

func (s *scan) run(l *lines) error {
	s.at = s.tail.end
	var last entry // the previous line, if its append continues
	for {
		line, at, err := l.line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, why := parseEntry(line, s.journal.salt)
		if s.why == "" && why == "" {
			why = follows(e, s.line, last)
			if why == "" {
				s.line, s.at = e.seq, at+int64(len(line))
				if last = e; e.part == e.of {
					last = entry{}
					s.whole()
				}
				continue
			}
		}
		if s.why == "" {
			s.why = why
		}
		// A crash tears only the last append. Intact entries of another one
		// after the damage prove that a crash did not cause it.
		if e.seq != 0 && e.first() != s.tail.seq+1 {
			s.later = true
		}
	}
}

// whole notes that an append is complete.
func (s *scan) whole() {
	s.tail.seq, s.tail.end = s.line, s.at
	s.tail.marked()
	if s.line == s.head.seq && s.at == s.head.end {
		s.headSeen = true
	}
}

// follows says why e cannot be the line after sequence seq. Last is the previous
// line if its append continues.
func follows(e entry, seq uint64, last entry) string {
	switch {
	case e.seq != seq+1:
		return fmt.Sprintf("found sequence %d where %d belongs", e.seq, seq+1)
	case e.part != last.part+1, last.of != 0 && e.of != last.of:
		return fmt.Sprintf("found part %d of %d where part %d belongs", e.part, e.of, last.part+1)
	}
	return ""
}

// repair brings an undamaged file to a clean end: it cuts off a torn append, and
// makes whole appends after the head, whose writer died before it could
// acknowledge them, durable before anyone reads them.
func (e *engine) repair(j *journal, found *finding) error {
	t := &found.tail
	if t.bad != nil || t.seq == 0 || t.end == found.size && t.seq == found.head.seq {
		return nil
	}
	if err := e.writable(); err != nil {
		if t.seq == found.head.seq && e.poisoned() != nil {
			return nil // readers do not see the torn append, and nothing can be appended after it
		}
		return err
	}
	f, err := e.files.get(j)
	if err != nil {
		return fmt.Errorf("filestore: recover journal %q: %w; check the file's permissions", j.name, err)
	}
	if t.end < found.size {
		err = e.disk.truncate(f, t.end)
	}
	if err == nil && t.seq > found.head.seq {
		err = e.rewrite(f, found.head.end, t.end)
	}
	if err == nil {
		err = e.disk.sync(f)
	}
	if err == nil && t.seq > found.head.seq {
		// Unlike that of an append it is synced: nothing may follow it here, and a backup
		// that was read to check it has to remain as it was measured.
		err = e.writeHead(j, f, head{seq: t.seq, end: t.end})
		if err == nil {
			err = e.disk.sync(f)
		}
	}
	if err != nil {
		return e.poison(err, "recovering journal %q", j.name)
	}
	return nil
}

// rewrite writes a part of a file over itself. If an earlier sync of it failed,
// the system may consider it written although it is not on the disk, and the next
// sync would not change that.
func (e *engine) rewrite(f *os.File, from, to int64) error {
	b := make([]byte, min(chunk, to-from))
	for from < to {
		b = b[:min(int64(len(b)), to-from)]
		if _, err := f.ReadAt(b, from); err != nil {
			return err
		}
		if err := e.disk.write(f, b, from); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}
