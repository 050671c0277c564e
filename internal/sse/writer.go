package sse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// keepBuffer is the largest buffer that an encoder may have to be pooled.
const keepBuffer = 64 << 10

// AppendRetry appends the line that asks readers to wait before they reconnect.
func AppendRetry(buf []byte, d time.Duration) []byte {
	return fmt.Appendf(buf, "retry: %d\n", d.Milliseconds())
}

// Encoder encodes events whose data is JSON. It is not safe for concurrent use.
type Encoder struct {
	buf  bytes.Buffer
	json *json.Encoder // into buf
}

var encoders = sync.Pool{New: func() any {
	b := new(Encoder)
	b.json = json.NewEncoder(&b.buf)
	return b
}}

// TakeEncoder returns an encoder from the pool. The caller must Release it.
func TakeEncoder() *Encoder { return encoders.Get().(*Encoder) }

// Release returns the encoder to the pool, unless it has grown large.
func (b *Encoder) Release() {
	if b.buf.Cap() <= keepBuffer {
		encoders.Put(b)
	}
}

// Encode returns an event, which is valid until the next call. An empty id or
// kind is omitted.
func (b *Encoder) Encode(id, kind string, data any) ([]byte, error) {
	b.buf.Reset()
	if id != "" {
		b.buf.WriteString("id: ")
		b.buf.WriteString(id)
		b.buf.WriteByte('\n')
	}
	if kind != "" {
		b.buf.WriteString("event: ")
		b.buf.WriteString(field(kind))
		b.buf.WriteByte('\n')
	}
	b.buf.WriteString("data: ")
	if err := b.json.Encode(data); err != nil { // compacts raw values too, so it is one line
		return nil, err
	}
	b.buf.WriteByte('\n')
	return b.buf.Bytes(), nil
}

// Encode returns an event whose data is JSON.
func Encode(id, kind string, data any) ([]byte, error) {
	b := TakeEncoder()
	defer b.Release()
	raw, err := b.Encode(id, kind, data)
	return bytes.Clone(raw), err
}

// AppendBlock appends an event whose data is on one line.
func AppendBlock(buf []byte, kind string, line []byte) []byte {
	buf = append(append(append(buf, "event: "...), field(kind)...), "\ndata: "...)
	return append(append(buf, line...), "\n\n"...)
}

// field removes the characters that cannot be part of a field's value.
func field(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == 0 {
			return -1
		}
		return r
	}, text)
}
