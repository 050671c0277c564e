package filestore

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/store"
)

func checkJSON(t *testing.T, line []byte) {
	t.Helper()
	if !json.Valid(line) || !bytes.HasSuffix(line, []byte("\n")) {
		t.Errorf("not a line of JSON: %.200q", line)
	}
}

// awkward are entries and names that are easy to get wrong.
var awkward = []string{
	"", "0", "null", `"x"`, " {\"a\" : 1 } ", "{\"a\":1,\"a\":2}", "1,2", `1,"seq":3`, `{"a":1}}`, "\ufeff1",
	"\t[1]\t", "[1]\n", "[\r1]", "\n", "\x00", "\xff\xfe", "\"\xff\"", "\"\u2028\"", "12345678901234567890123",
	`"\ud800"`, `"a","crc":"00000000"}`, strings.Repeat("[", 9999) + strings.Repeat("]", 9999),
	strings.Repeat("\x80", store.MaxEntry+store.Slack),
}

func TestEntryRoundTrip(t *testing.T) {
	for _, data := range awkward {
		want := entry{seq: 7, part: 2, of: 3}
		line := appendEntry(nil, 5, want, []byte(data))
		checkJSON(t, line)
		if bytes.Count(line, []byte("\n")) != 1 || len(line) > maxLine {
			t.Errorf("%.40q becomes %d bytes and %d lines", data, len(line), bytes.Count(line, []byte("\n")))
		}
		got, why := parseEntry(line, 5)
		back, ok := dataOf(got.member)
		if why != "" || !ok || back == nil || string(back) != data || got.seq != 7 || got.part != 2 || got.of != 3 {
			t.Errorf("%.40q comes back as %.40q, %+v, %q", data, back, got, why)
		}
		if plainJSON := json.Valid([]byte(data)) && utf8.ValidString(data) && !strings.ContainsAny(data, "\r\n") && len(data) < 9000; plainJSON != strings.Contains(string(line), `,"data":`+data+`,`) {
			t.Errorf("%.40q stands in its line as %.80q", data, line)
		}
		if _, why := parseEntry(line, 6); why == "" {
			t.Error("a line is valid in another journal")
		}
	}
}

func TestNameRoundTrip(t *testing.T) {
	places := map[string]string{}
	for _, name := range append(awkward[1:len(awkward)-2], "../../etc/passwd", "CON", "a", "A", "a/", "é", "e\u0301", `"name":"x"`, strings.Repeat("\x01", store.MaxName)) {
		line := headerOf(name)
		checkJSON(t, line)
		if len(line)+2*int(headLen) > maxTop+2*int(headLen) {
			t.Errorf("%q has a header of %d bytes", name, len(line))
		}
		others := appendEntry(nil, 0, entry{seq: 1, part: 1, of: 1}, []byte(`{"a":1,"name":"x","name64":"eA=="}`))
		got, ok := cutName(append(line, others...), "name")
		if !ok || got != name {
			t.Errorf("%q comes back as %q", name, got)
		}
		c := store.Cell{Key: name, Value: []byte(name), Version: "V"}
		checkJSON(t, renderCell(c))
		if back, why := parseCell(renderCell(c), name); why != "" || string(back.Value) != name || back.Version != "V" {
			t.Errorf("cell %q comes back as %v, %q", name, back, why)
		}
		base := placeOf(name).base
		if strings.Trim(base, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(base) > maxSlug+33 || strings.HasPrefix(base, "-") {
			t.Errorf("%q has the file name %q", name, base)
		}
		if other, taken := places[strings.ToLower(base)]; taken {
			t.Errorf("%q and %q have one file name", name, other)
		}
		places[base] = name
	}
}

// FuzzParseEntry feeds the parser garbage: it never panics, and what it takes
// for an entry is exactly the line that would be written for it.
func FuzzParseEntry(f *testing.F) {
	for _, data := range awkward[:len(awkward)-2] {
		f.Add(appendEntry(nil, 5, entry{seq: 1, part: 1, of: 1}, []byte(data)))
	}
	f.Add([]byte("{\"seq\":18446744073709551615,\"part\":1,\"of\":1,\"data\":0,\"crc\":\"00000000\"}\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		try := func(line []byte) {
			e, why := parseEntry(line, 5)
			data, ok := dataOf(e.member)
			if why != "" || !ok {
				return
			}
			again, why := parseEntry(appendEntry(nil, 5, e, data), 5)
			back, _ := dataOf(again.member)
			if why != "" || again.seq != e.seq || again.part != e.part || again.of != e.of || !bytes.Equal(back, data) {
				t.Errorf("%q is read as %+v with %q, and that as %+v with %q", line, e, data, again, back)
			}
		}
		try(line)
		try(seal(bytes.Clone(line), 0, 5)) // garbage with a checksum that matches
		parseHead(line, 5)
		cutName(line, "name")
		parseCell(seal(bytes.Clone(line), 0, saltOf("k")), "k")
	})
}
