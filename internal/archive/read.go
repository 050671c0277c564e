package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
)

// Taker receives the parts of an export in order. Nil functions are not called.
type Taker struct {
	Head  func(ExportHead) error
	Blob  func(blob.Ref, int64) (*blob.Copy, error)
	Entry func(journal.Entry, []byte) error // the taker may keep the bytes
}

// Read reads an export, checks it and passes its parts to take. The error is
// from the reader, the context or the taker; damage is in the Verification.
func Read(ctx context.Context, rd io.Reader, take Taker) (*Verification, error) {
	u := &reader{ctx: ctx, take: take, lines: &lineReader{r: bufio.NewReaderSize(rd, 64<<10), sum: sha256.New()},
		v: &Verification{}, thread: journal.NewThread(), blobs: map[string]bool{}, unused: map[string]bool{}}
	err := u.readAll()
	if bad := (*badLine)(nil); errors.As(err, &bad) {
		u.v.bad("line %d: %v", u.lines.n, bad.error)
		if u.v.Good > 0 {
			u.v.Problem += fmt.Sprintf("; the entries up to %d are good", u.v.Good)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("perdure: reading an export after line %d: %w", u.lines.n, err)
	}
	return u.v, nil
}

// badLine is damage, as opposed to a failure to read.
type badLine struct{ error }

func badf(format string, args ...any) error { return &badLine{fmt.Errorf(format, args...)} }

type reader struct {
	ctx    context.Context
	take   Taker
	lines  *lineReader
	v      *Verification
	head   ExportHead
	thread *journal.Thread // nil after a rewind, which needs the entries before it
	hash   journal.Hash
	blobs  map[string]bool // hashes of those read
	unused map[string]bool // those that no entry has referred to yet
}

func (u *reader) readAll() error {
	if err := u.readHead(); err != nil {
		return err
	}
	for {
		sum := sumText(u.lines.sum)
		line, err := u.lines.next()
		if err == io.EOF {
			u.lines.n++
			return badf("it is missing: the file ends after entry %d of %d", u.v.Good, u.head.Entries)
		}
		if err != nil {
			return err
		}
		if err := u.ctx.Err(); err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte(`{"v":`)):
			err = u.readEntry(line)
		case bytes.HasPrefix(line, []byte(`{"blob":`)):
			err = u.readBlob(line)
		case bytes.HasPrefix(line, []byte(`{"end":`)):
			return u.readEnd(line, sum)
		default:
			err = badf("it is neither an entry nor a value nor the end")
		}
		if err != nil {
			return err
		}
	}
}

func (u *reader) readHead() error {
	line, err := u.lines.next()
	if err == io.EOF {
		return badf("the file is empty")
	}
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte(`{"perdure":"export",`)) {
		return badf("it does not begin an export of a thread")
	}
	h := &u.head
	if json.Unmarshal(line, h) == nil && h.Format > exportFormat {
		return badf("the file has the format %d, or is damaged; this version reads up to %d", h.Format, exportFormat)
	}
	if err := exactly(line, h); err != nil {
		return err
	}
	if h.Format < 1 || h.Entries == 0 {
		return badf("it has the format %d and %d entries", h.Format, h.Entries)
	}
	u.v.Thread, u.v.Tenant, u.v.Redacted = h.Thread, h.Tenant, h.Redacted
	if u.take.Head != nil {
		return u.take.Head(*h)
	}
	return nil
}

// exactly parses a line that can be written in only one way.
func exactly[T any](line []byte, v *T) error {
	*v = *new(T)
	if err := json.Unmarshal(line, v); err != nil {
		return badf("%w", err)
	}
	again, err := strict.Marshal(*v)
	if err != nil || !bytes.Equal(again, line) {
		return badf("it is not as it was written")
	}
	return nil
}

func (u *reader) readEntry(line []byte) error {
	seq := u.v.Good + 1
	u.v.Entries++
	switch {
	case seq > u.head.Entries:
		return badf("it is one entry more than the %d that the first line announces", u.head.Entries)
	case len(line) > store.MaxEntry+store.Slack:
		return badf("an entry of %d bytes", len(line))
	}
	data := bytes.Clone(line)
	decode := journal.Decode
	if u.head.Redacted {
		decode = journal.DecodeRedacted
	}
	e, err := decode(u.hash, seq, data)
	if err == nil && !u.head.Redacted {
		err = u.fold(e)
	}
	if err != nil {
		return badf("entry %d: %w", seq, err)
	}
	if u.take.Entry != nil {
		if err := u.take.Entry(e, data); err != nil {
			return err
		}
	}
	u.hash = e.Hash
	u.v.took(e, len(data))
	return nil
}

// fold checks the meaning of an entry.
func (u *reader) fold(e journal.Entry) error {
	b, err := e.Read()
	if err != nil && e.Kind.Known() {
		return fmt.Errorf("its body: %w", err)
	}
	for _, ref := range b.Refs() {
		if !u.blobs[ref.Hash] {
			return fmt.Errorf("it refers to a missing value of %d bytes, %s", ref.Size, ref.Hash)
		}
		delete(u.unused, ref.Hash)
	}
	if len(u.unused) > 0 {
		return fmt.Errorf("it does not refer to the value before it")
	}
	if u.thread == nil || e.Kind == journal.Rewound {
		u.thread = nil
		return nil
	}
	return u.thread.Apply(e)
}

// readBlob reads a large value: the line that begins it, and its chunks.
func (u *reader) readBlob(line []byte) error {
	var b exportBlob
	if err := exactly(line, &b); err != nil {
		return err
	}
	if u.head.Redacted {
		return badf("a value in a redacted export")
	}
	if u.blobs[b.Hash] {
		return badf("the value %s occurs twice", b.Hash)
	}
	ref := blob.Ref{Hash: b.Hash, Size: b.Size}
	c, err := blob.NewCopy(nil, "", ref, b.Chunk)
	if err != nil {
		return badf("%w", err)
	}
	if u.take.Blob != nil {
		if c, err = u.take.Blob(ref, b.Chunk); err != nil {
			return err
		}
	}
	for !c.Done() {
		line, err := u.lines.next()
		if err == io.EOF {
			u.lines.n++
			return badf("it is missing: the file ends within the value %s", b.Hash)
		}
		if err != nil {
			return err
		}
		text, begins := bytes.CutPrefix(line, []byte(chunkMark))
		text, ends := bytes.CutSuffix(text, []byte(chunkTail))
		if !begins || !ends {
			return badf("it is not a part of the value %s", b.Hash)
		}
		chunk, err := base64.StdEncoding.Strict().AppendDecode(nil, text)
		if err != nil {
			return badf("a part of the value %s: %w", b.Hash, err)
		}
		if err := u.added(c.Add(u.ctx, chunk)); err != nil {
			return err
		}
	}
	if err := u.added(c.Close(u.ctx)); err != nil {
		return err
	}
	u.blobs[b.Hash], u.unused[b.Hash] = true, true
	u.v.Blobs++
	u.v.Bytes += b.Size
	return nil
}

// added tells a value that does not match its hash from a failing store.
func (u *reader) added(err error) error {
	if bad := (*store.CorruptError)(nil); errors.Is(err, store.ErrCorrupt) && !errors.As(err, &bad) {
		return &badLine{err}
	}
	return err
}

// readEnd reads the last line and compares it with everything before it.
func (u *reader) readEnd(line []byte, sum string) error {
	var end exportEnd
	if err := exactly(line, &end); err != nil {
		return err
	}
	switch {
	case len(u.unused) > 0:
		return badf("the file ends after a value that no entry refers to")
	case u.v.Good != u.head.Entries:
		return badf("the file ends after entry %d of %d", u.v.Good, u.head.Entries)
	case u.v.Head != u.head.Head:
		return badf("the last entry has the hash %s, but the first line says %s", u.v.Head, u.head.Head)
	case end != exportEnd{End: "export", Entries: u.v.Good, Blobs: u.v.Blobs, Sum: sum, Key: end.Key, Sig: end.Sig}:
		return badf("it does not fit the lines before it: one of them, or itself, was changed")
	case (u.head.Format >= signedFormat) != (end.Key != "" && end.Sig != ""):
		return badf("a signature is missing or unexpected in format %d: files are signed from format %d on", u.head.Format, signedFormat)
	case u.thread != nil && !u.head.Redacted && (u.thread.ID != u.head.Thread || u.thread.Tenant != u.head.Tenant):
		return badf("the first line names thread %q of tenant %q, but the entries name %q of %q", u.head.Thread, u.head.Tenant, u.thread.ID, u.thread.Tenant)
	}
	if end.Key != "" {
		if err := end.checkSignature(); err != nil {
			return badf("%w", err)
		}
	}
	u.v.Signer = end.Key
	if _, err := u.lines.next(); err != io.EOF {
		if bad := (*badLine)(nil); err == nil || errors.As(err, &bad) {
			return badf("it comes after the end")
		}
		return err
	}
	return nil
}

// maxLine is the length of the longest line of an export.
const maxLine = 1 << 20

// lineReader reads lines of bounded length and hashes them.
type lineReader struct {
	r    *bufio.Reader
	sum  hash.Hash
	n    int // lines so far
	line []byte
}

// next returns the next line, valid until the next call, or io.EOF at the end.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case err == nil:
			l.n++
			if len(l.line) > maxLine {
				return nil, badf("it is longer than %d bytes", maxLine)
			}
			l.sum.Write(l.line)
			return l.line[:len(l.line)-1], nil
		case err == io.EOF && len(l.line) == 0:
			return nil, io.EOF
		case err == io.EOF:
			l.n++
			return nil, badf("the file ends within it")
		case err != bufio.ErrBufferFull:
			return nil, err
		case len(l.line) > maxLine:
			l.n++
			return nil, badf("it is longer than %d bytes", maxLine)
		}
	}
}
