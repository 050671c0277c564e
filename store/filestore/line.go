package filestore

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"unicode/utf8"

	"github.com/perdure/perdure/store"
)

// Every line of every file is a JSON object whose last member is a checksum
// of the bytes before it:
//
//	CONTENT,"crc":"xxxxxxxx"}\n
//
// The checksum is seeded with that of the journal's name or the cell's key, so
// that a line is valid only in its own file. Lines are parsed by their fixed
// shape, never decoded and re-encoded: they hold what was given, byte for byte.
const (
	crcField = `,"crc":"`
	crcLen   = len(crcField) + 8 + len("\"}\n")

	// maxLine exceeds the longest possible line, which holds the largest entry
	// in base64.
	maxLine = (store.MaxEntry+store.Slack)*4/3 + 4096

	// maxNesting keeps deeply nested JSON out of lines: encoding/json accepts
	// at most 10 000 levels, and a line adds one.
	maxNesting = 9000
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func saltOf(name string) uint32 { return crc32.Checksum([]byte(name), castagnoli) }

// seal ends the line that starts at b[start].
func seal(b []byte, start int, salt uint32) []byte {
	sum := crc32.Update(salt, castagnoli, b[start:])
	b = append(b, crcField...)
	b = appendHex(b, sum)
	return append(b, "\"}\n"...)
}

// unseal returns the content of a sealed line, or says what is wrong with it.
func unseal(line []byte, salt uint32) (content []byte, why string) {
	cut := len(line) - crcLen
	if cut < 0 || line[len(line)-1] != '\n' {
		return nil, "the line is cut off"
	}
	content = line[:cut]
	var want [crcLen]byte
	w := append(want[:0], crcField...)
	w = appendHex(w, crc32.Update(salt, castagnoli, content))
	w = append(w, "\"}\n"...)
	if !bytes.Equal(line[cut:], w) {
		return nil, "the line's checksum does not match"
	}
	return content, ""
}

func appendHex(b []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[sum>>shift&15])
	}
	return b
}

// appendData appends the member that holds an entry or value.
func appendData(b, data []byte) []byte {
	if plain(data) {
		b = append(b, `,"data":`...)
		return append(b, data...)
	}
	b = append(b, `,"base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// plain reports whether data can be stored in a line as it is.
func plain(data []byte) bool {
	return bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 &&
		bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < maxNesting &&
		utf8.Valid(data) && json.Valid(data)
}

// dataOf returns a copy of the bytes that appendData was given. It never
// returns nil bytes: empty data is empty, not absent.
func dataOf(member []byte) ([]byte, bool) {
	if raw, ok := bytes.CutPrefix(member, []byte(`,"data":`)); ok {
		return append([]byte{}, raw...), true
	}
	text, ok := bytes.CutPrefix(member, []byte(`,"base64":"`))
	if ok {
		text, ok = bytes.CutSuffix(text, []byte(`"`))
	}
	if !ok {
		return nil, false
	}
	data, err := base64.StdEncoding.AppendDecode([]byte{}, text)
	return data, err == nil
}

// entry is a parsed line of a journal. Part and of give its place in its append.
type entry struct {
	seq      uint64
	part, of uint64
	member   []byte // what appendData wrote
}

// first returns the sequence of the first entry of the same append.
func (e entry) first() uint64 { return e.seq - e.part + 1 }

func appendEntry(b []byte, salt uint32, e entry, data []byte) []byte {
	start := len(b)
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.seq, 10)
	b = append(b, `,"part":`...)
	b = strconv.AppendUint(b, e.part, 10)
	b = append(b, `,"of":`...)
	b = strconv.AppendUint(b, e.of, 10)
	b = appendData(b, data)
	return seal(b, start, salt)
}

// parseEntry parses a line, or says why it is not an entry. The result points into
// the line.
func parseEntry(line []byte, salt uint32) (e entry, why string) {
	b, why := unseal(line, salt)
	if why != "" {
		return entry{}, why
	}
	ok := number(&b, `{"seq":`, &e.seq) && number(&b, `,"part":`, &e.part) && number(&b, `,"of":`, &e.of)
	e.member = b
	if !ok || e.part < 1 || e.part > e.of || e.of > store.MaxBatch || e.seq < e.part {
		return entry{}, "the line is not an entry"
	}
	return e, ""
}

// number cuts a literal and the decimal number that follows it off the front of b.
func number(b *[]byte, literal string, n *uint64) bool {
	rest, ok := bytes.CutPrefix(*b, []byte(literal))
	if !ok {
		return false
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	value, err := strconv.ParseUint(string(rest[:digits]), 10, 64)
	if err != nil || rest[0] == '0' {
		return false
	}
	*n, *b = value, rest[digits:]
	return true
}

// head says that a journal is known to be synced up to the end of entry seq, at
// offset end. Its line always has the same length.
type head struct {
	seq uint64
	end int64
}

var headLen = int64(len(appendHead(nil, 0, head{})))

func appendHead(b []byte, salt uint32, h head) []byte {
	start := len(b)
	b = fmt.Appendf(b, `{"head":%20d,"end":%20d`, h.seq, h.end)
	return seal(b, start, salt)
}

func parseHead(line []byte, salt uint32) (h head, ok bool) {
	content, why := unseal(line, salt)
	if why != "" {
		return head{}, false
	}
	_, err := fmt.Sscanf(string(content), `{"head":%d,"end":%d`, &h.seq, &h.end)
	return h, err == nil
}

// headerOf returns the first line of a journal's file, which never changes.
func headerOf(name string) []byte {
	b := appendName([]byte(`{"perdure":"journal","format":1`), "name", name)
	return seal(b, 0, saltOf(name))
}

// tombstoneOf returns the only line of a dropped journal's file. It reveals no
// more about the journal than the hash in the file's name.
func tombstoneOf(hash string) []byte {
	b := []byte(`{"perdure":"dropped","format":1,"hash":"` + hash + `"`)
	return seal(b, 0, saltOf(hash))
}

// appendName appends the member that holds a name: as a string if it is valid
// UTF-8, and otherwise in base64. It does not use encoding/json for the string,
// because files are compared with the result and it must never change.
func appendName(b []byte, field, name string) []byte {
	if !utf8.ValidString(name) {
		b = append(b, `,"`+field+`64":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(name))
		return append(b, '"')
	}
	b = append(b, `,"`+field+`":"`...)
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// cutName returns the name in the member that appendName wrote. It ignores the
// checksum: a caller that knows by its hash that the name belongs to the file can
// trust it even in a damaged line. Of the two spellings the first one is the
// name's; what follows it may be any JSON.
func cutName(b []byte, field string) (name string, ok bool) {
	before, text, ok := bytes.Cut(b, []byte(`,"`+field+`":"`))
	_, text64, encoded := bytes.Cut(before, []byte(`,"`+field+`64":"`))
	if encoded {
		text64, _, ok = bytes.Cut(text64, []byte(`"`))
		raw, err := base64.StdEncoding.DecodeString(string(text64))
		return string(raw), ok && err == nil
	}
	if !ok {
		return "", false
	}
	end := 0
	for end < len(text) && text[end] != '"' {
		if text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(text) {
		return "", false
	}
	err := json.Unmarshal([]byte(`"`+string(text[:end])+`"`), &name)
	return name, err == nil
}
