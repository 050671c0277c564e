package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
)

// A redacted entry has the SHA-256 of its body in place of the body, as a string in
// base64. A body is an object, so the two cannot be confused.
const redactedSize = hashSize + 2

// Redact returns the bytes of a whole entry without its body.
func Redact(data []byte) ([]byte, error) {
	var e Entry
	header, err := e.header(data)
	if err != nil {
		return nil, err
	}
	if len(data) < header+tailSize {
		return nil, errors.New("it is not a whole entry")
	}
	body, tail := data[header:len(data)-tailSize], data[len(data)-tailSize:]
	sum := sha256.Sum256(body)
	short := append(make([]byte, 0, header+redactedSize+tailSize), data[:header]...)
	short = append(short, '"')
	short = base64.RawURLEncoding.AppendEncode(short, sum[:])
	short = append(short, '"')
	return append(short, tail...), nil
}

// DecodeRedacted is Decode for the bytes that Redact returned. The entry has no
// body.
func DecodeRedacted(prev Hash, seq uint64, data []byte) (Entry, error) {
	e := Entry{Seq: seq}
	header, err := e.header(data)
	if err != nil {
		return e, err
	}
	if len(data) != header+redactedSize+tailSize {
		return e, errors.New("it is not a redacted entry")
	}
	var sum Hash
	body := data[header : header+redactedSize]
	if body[0] != '"' || body[redactedSize-1] != '"' || sum.UnmarshalText(body[1:redactedSize-1]) != nil {
		return e, errors.New("it has no hash in place of its body")
	}
	tail := data[header+redactedSize:]
	if !bytes.HasPrefix(tail, []byte(hashMark)) || !bytes.HasSuffix(tail, []byte(`"}`)) || e.Hash.UnmarshalText(tail[len(hashMark):len(hashMark)+hashSize]) != nil {
		return e, errors.New("it has no hash at its end")
	}
	if e.Hash != link(prev, data[:header], sum) {
		return e, errors.New("its hash does not follow from its bytes and the entry before it")
	}
	return e, nil
}
