package scrub

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// encodings are the ways in which a secret may come back, each between other
// bytes.
var encodings = map[string]func(before, secret, after string) string{
	"plain": func(b, s, a string) string { return b + s + a },
	"upper": func(b, s, a string) string { return b + strings.ToUpper(s) + a },
	"lower": func(b, s, a string) string { return b + strings.ToLower(s) + a },
	"json": func(b, s, a string) string {
		raw, _ := json.Marshal(map[string]string{b: s + a})
		return string(raw)
	},
	"json in json": func(b, s, a string) string {
		raw, _ := json.Marshal(b + s + a)
		raw, _ = json.Marshal(string(raw))
		return string(raw)
	},
	"go":          func(b, s, a string) string { return strconv.Quote(b + s + a) },
	"go in ascii": func(b, s, a string) string { return fmt.Sprintf("%+q", b+s+a) },
	"php": func(b, s, a string) string {
		raw, _ := json.Marshal(b + s + a)
		return strings.ReplaceAll(string(raw), "/", `\/`)
	},
	"html, quot":  func(b, s, a string) string { return htmlWith(b+s+a, "&quot;", "&apos;") },
	"html, hex":   func(b, s, a string) string { return htmlWith(b+s+a, "&#x22;", "&#x27;") },
	"html, mixed": func(b, s, a string) string { return htmlWith(b+s+a, "&quot;", "&#x27;") },
	"path in json": func(b, s, a string) string {
		raw, _ := json.Marshal(url.PathEscape(b + s + a))
		return string(raw)
	},
	"upper in json": func(b, s, a string) string {
		raw, _ := json.Marshal(b + strings.ToUpper(s) + a)
		return string(raw)
	},
	"html":     func(b, s, a string) string { return html.EscapeString(b + s + a) },
	"query":    func(b, s, a string) string { return "?q=" + url.QueryEscape(b+s+a) },
	"path":     func(b, s, a string) string { return url.PathEscape(b + s + a) },
	"userinfo": func(b, s, a string) string { return url.UserPassword("ann", s).String() },
	"percent": func(b, s, a string) string {
		return "%" + strings.ReplaceAll(fmt.Sprintf("% x", b+s+a), " ", "%")
	},
	"hex":   func(b, s, a string) string { return hex.EncodeToString([]byte(b + s + a)) },
	"HEX":   func(b, s, a string) string { return fmt.Sprintf("%X", b+s+a) },
	"basic": func(b, s, a string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:"+s)) },
	"std":   func(b, s, a string) string { return base64.StdEncoding.EncodeToString([]byte(b + s + a)) },
	"url":   func(b, s, a string) string { return base64.URLEncoding.EncodeToString([]byte(b + s + a)) },
	"std, unpadded": func(b, s, a string) string {
		return base64.RawStdEncoding.EncodeToString([]byte(b + s + a))
	},
	"url, unpadded": func(b, s, a string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(b + s + a))
	},
}

// TestNoEncodingOfASecretPasses holds random secrets in random surroundings,
// which puts base64 at all its alignments, against all encodings. What is left
// is what surrounds the mark, so a text that still has a half of the secret in
// it, or of its encoding, is found.
func TestNoEncodingOfASecretPasses(t *testing.T) {
	const alphabet = `abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~!*'()/+=:@&<>"\%$#? ` + "\n\té€"
	letters := []rune(alphabet)
	secrets := uint64(300)
	if testing.Short() {
		secrets = 60
	}
	for name, encode := range encodings {
		t.Run(name, func(t *testing.T) {
			for seed := range secrets {
				r := rand.New(rand.NewPCG(seed, 1))
				text := func(n int) string {
					s := make([]rune, n)
					for i := range s {
						s[i] = letters[r.IntN(len(letters))]
					}
					return string(s)
				}
				before, secret, after := text(r.IntN(9)), text(8+r.IntN(40)), text(r.IntN(9))
				var s Set
				s.Add("another secret", secret)
				whole := encode(before, secret, after)
				got := s.Text(whole)
				if !strings.Contains(got, Mark) {
					t.Fatalf("seed %d: %q passes in %q", seed, secret, whole)
				}
				// Whatever a reader can decode from what is left, it is less than
				// half of the secret.
				rest := len(strings.Replace(got, Mark, "", 1))
				if around := len(encode(before, "", after)); rest > around+len(whole)/len(secret)*2+4 {
					t.Errorf("seed %d: of %q in %q, %q is left", seed, secret, whole, got)
				}
			}
		})
	}
}

func TestWhatIsNoSecretStays(t *testing.T) {
	for _, text := range []string{"", "abc", "a secre is told", "The quick brown fox.", strings.Repeat("secre", 100)} {
		var s Set
		s.Add("secret-1", "abc", "") // the last are too short to be looked for
		if got := s.Text(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	var none *Set
	none.Add("secret-1")
	if got := none.Text("secret-1"); got != "secret-1" {
		t.Errorf("without a set: %q", got)
	}
}

func TestSetsOfAContext(t *testing.T) {
	ctx, outer := With(context.Background())
	inside, inner := With(ctx)
	outer.Add("outer-1")
	From(inside).Add("inner-1")
	if got := inner.Text("outer-1 inner-1"); got != Mark+" "+Mark {
		t.Errorf("inside: %q", got)
	}
	if got := outer.Text("outer-1 inner-1"); got != Mark+" inner-1" {
		t.Errorf("outside: %q", got)
	}
}

func TestSecretsThatOverlap(t *testing.T) {
	var s Set
	s.Add("key-12", "key-1234", "1234-key", "aaaa")
	for text, want := range map[string]string{
		"key-1234":        Mark,
		"key-12!":         Mark + "!",
		"key-1234-key":    Mark,
		"key-12key-12":    Mark,
		"aaaaaaaaaa key":  Mark + "aa key",
		"x KEY-1234 KEY-": "x " + Mark + " KEY-",
	} {
		if got := s.Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestJSONStaysJSON(t *testing.T) {
	var s Set
	s.Add(`tell","me`, "123456", `back\slash"`)
	for text, want := range map[string]string{
		`{"a":"b"}`:             `{"a":"b"}`,
		`["tell","me"]`:         `["[redacted]"]`,
		`[123456]`:              `"[redacted]"`, // it is not a string that holds it
		`["123456"]`:            `["[redacted]"]`,
		`{"a":"back\\slash\""}`: `{"a":"[redacted]"}`,
	} {
		if got := string(s.JSON(json.RawMessage(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// TestACutLeavesNoPartOfASecret cuts a text at every place around a secret.
func TestACutLeavesNoPartOfASecret(t *testing.T) {
	var s Set
	s.Add("secret-0123456789")
	text := strings.Repeat(".", 500) + "secret-0123456789" + strings.Repeat(".", 500)
	for limit := range len(text) {
		if got := s.Limited(text, limit); strings.Contains(got, "sec") {
			t.Fatalf("cut at %d: %q", limit, got)
		}
	}
	if got := s.Limited("short", 100); got != "short" {
		t.Errorf("got %q", got)
	}
}

// TestHugeTextsAreBounded: a text of many megabytes full of what almost is a
// secret, or full of it, takes as long as reading it a few dozen times.
func TestHugeTextsAreBounded(t *testing.T) {
	var s Set
	s.Add(strings.Repeat("a", 1000)+"b", "x1x1", strings.Repeat("é", 30<<10))
	for _, text := range []string{strings.Repeat("a", 4<<20), strings.Repeat("x1", 2<<20)} {
		if got := s.Text(text); len(got) > len(text) {
			t.Errorf("%d bytes become %d", len(text), len(got))
		}
	}
}

func BenchmarkText(b *testing.B) {
	var s Set
	s.Add("secret-0123456789", "another-secret")
	text := strings.Repeat("The quick brown fox. ", 1<<20/21)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.Text(text)
	}
}

func htmlWith(s, quote, apostrophe string) string {
	return strings.NewReplacer("&#34;", quote, "&#39;", apostrophe).Replace(html.EscapeString(s))
}
