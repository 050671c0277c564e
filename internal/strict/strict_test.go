package strict_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/strict"
)

// check reads a whole value.
func check(data []byte) error {
	r, err := strict.NewReader(data)
	if err == nil {
		_, err = r.Raw()
	}
	if err == nil {
		err = r.End()
	}
	return err
}

func TestCheck(t *testing.T) {
	for _, good := range []string{
		`{}`, `[]`, `null`, `1e400`, `"x"`, `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, ` {"a" : 9007199254740993} ` + "\n",
		strings.Repeat("[", strict.MaxDepth) + strings.Repeat("]", strict.MaxDepth),
		`{"a":"{\"x\":1,\"x\":2}"}`, `{"":1}`, `["a","a","A"]`, `{"a":"b","b":"a"}`,
		`"\ud83d\ude00 \\ud800 \uFFFD"`, `"\u0041\uD83D\uDE00\n"`,
	} {
		if err := check([]byte(good)); err != nil {
			t.Errorf("%s is refused: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		`{"a":1,"a":1}`:                  `"a" occurs twice`,
		`{"a":1,"\u0061":1}`:             `"a" occurs twice`,
		`{"sum":1,"Sum":1}`:              `only in case`,
		`{"sum":1,"ſum":1}`:              `only in case`,
		`[{"x":[],"y":{"q":1,"Q":2}}]`:   `only in case`,
		`{"a":1} {}`:                     `follows`,
		`{"a":1`:                         `too early`,
		``:                               `too early`,
		"{\"a\":\"\xff\"}":               `UTF-8`,
		`{"a":"\ud800"}`:                 `half of a surrogate pair`,
		`{"a\uDFFF":1}`:                  `half of a surrogate pair`,
		`"\ude00\ud83d"`:                 `half of a surrogate pair`,
		`"\\\ud83d\\ude00"`:              `half of a surrogate pair`,
		`"\ud83d\ud83d\ude00"`:           `half of a surrogate pair`,
		`"\ud83d\u12`:                    `half of a surrogate pair`,
		`"\`:                             `unexpected EOF`,
		`{"a":01}`:                       `invalid`,
		strings.Repeat("[", 65):          `deeper`,
		strings.Repeat(`{"a":`, 1000000): `deeper`,
	} {
		if err := check([]byte(bad)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40s: %v, want one about %q", bad, err, why)
		}
	}
}

func TestDepth(t *testing.T) {
	for text, want := range map[string]int{``: 0, `1`: 0, `[]`: 1, `{"a":[1,{}],"b":[]}`: 3, `"[[\"[["`: 0, `["\\",[]]`: 2} {
		if got := strict.Depth([]byte(text)); got != want {
			t.Errorf("%s is %d deep, want %d", text, got, want)
		}
	}
}

func TestSeen(t *testing.T) {
	for _, good := range []string{"", "ann", "Ann Å. <a@b.c>", "日本語", "e\u0301", "a/b:c", "\U0001F600", "\ue000"} {
		if !strict.Seen(good) {
			t.Errorf("%+q is not seen", good)
		}
	}
	for _, bad := range []rune{'\n', 0x1b, 0x7f, 0x85, 0xad, 0x34f, 0x61c, 0x115f, 0x17b4, 0x180b, 0x180e, 0x200b, 0x200d, 0x2028, 0x202e, 0x2060, 0x2066,
		0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfff9, 0xffff, 0x1d173, 0xe0041, 0xe0100, 0x10ffff} {
		if strict.Seen("a" + string(bad)) {
			t.Errorf("%+q is seen", bad)
		}
	}
	if strict.Seen("\xff") {
		t.Error("bytes that are no text are seen")
	}
}

// FuzzCheck holds what is let through against what encoding/json makes of it:
// nothing is lost or read in two ways, and Compact returns the same JSON.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"c":"d"}`, `{"a":1,"A":2}`, `[[[]]]`, `"\ud800"`, `{"a":1}x`, ` { "a b" : [ 1 , "\u2028<" ] } `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if check(data) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is let through and is no JSON", data)
		}
		want, err := strict.Marshal(json.RawMessage(data))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := strict.Read(strings.TrimSpace(string(data))).Compact(); err != nil || string(got) != string(want) {
			t.Fatalf("%q is compacted to %q, want %q (%v)", data, got, want, err)
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil && !strings.Contains(err.Error(), "cannot unmarshal number") {
			t.Fatalf("%q: %v", data, err)
		}
		if !strings.Contains(strings.ToLower(string(data)), `\ufffd`) && strings.Count(string(data), "\ufffd") != texts(v) {
			t.Fatalf("%q: a text is read as another", data)
		}
		names := 0
		count(v, &names)
		// Every name that was written is there: none hid another.
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		written, stack := 0, []struct{ object, key bool }{}
		for {
			tok, err := d.Token()
			if err != nil {
				break
			}
			switch tok {
			case json.Delim('{'), json.Delim('['):
				if n := len(stack); n > 0 {
					stack[n-1].key = stack[n-1].object
				}
				stack = append(stack, struct{ object, key bool }{tok == json.Delim('{'), tok == json.Delim('{')})
				continue
			case json.Delim('}'), json.Delim(']'):
				stack = stack[:len(stack)-1]
				continue
			}
			if n := len(stack); n > 0 {
				if stack[n-1].key {
					written++
				}
				stack[n-1].key = stack[n-1].object && !stack[n-1].key
			}
		}
		if v != nil && written != names {
			t.Fatalf("%q has %d names and %d are read", data, written, names)
		}
	})
}

// texts returns how often U+FFFD is in the texts of a value.
func texts(v any) (n int) {
	switch v := v.(type) {
	case string:
		n = strings.Count(v, "\ufffd")
	case map[string]any:
		for name, x := range v {
			n += texts(name) + texts(x)
		}
	case []any:
		for _, x := range v {
			n += texts(x)
		}
	}
	return n
}

func count(v any, names *int) {
	switch v := v.(type) {
	case map[string]any:
		*names += len(v)
		for _, x := range v {
			count(x, names)
		}
	case []any:
		for _, x := range v {
			count(x, names)
		}
	}
}

// TestQuoteLooksAtEachByte: a byte that needs an escape is found wherever it
// is.
func TestQuoteLooksAtEachByte(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := []byte(strings.Repeat("x", length))
				text[at] = byte(c)
				want, err := strict.Marshal(string(text))
				got := strict.Quote(string(text))
				if plain := err == nil && string(want) == `"`+string(text)+`"` && c < 0x80; plain != (got != nil) || got != nil && string(got) != string(want) {
					t.Fatalf("%q is quoted as %s, want %s", text, got, want)
				}
			}
		}
	}
}

// FuzzShortCuts holds Quote and Depth against what encoding/json makes of the
// same.
func FuzzShortCuts(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\"b", `\`, `"\\"`, "<&>", "\x7f", "é", "\u2028", "\xff", `{"a\"":[1,"]\\",{}]}`, ` [ ] `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := strict.Marshal(text)
		if got := strict.Quote(text); got != nil && (err != nil || string(got) != string(want)) {
			t.Errorf("%q is quoted as %s, want %s", text, got, want)
		}
		if !json.Valid([]byte(text)) {
			strict.Depth([]byte(text))
			return
		}
		depth, most := 0, 0
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		for {
			tok, err := d.Token()
			if err != nil {
				break
			}
			switch tok {
			case json.Delim('{'), json.Delim('['):
				depth++
				most = max(most, depth)
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
		}
		if got := strict.Depth([]byte(text)); got != most {
			t.Errorf("%q is %d deep, want %d", text, got, most)
		}
	})
}
