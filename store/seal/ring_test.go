package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

var secret = []byte("0123456789-secret-secret-secret!")

func TestNewRingRefuses(t *testing.T) {
	other := bytes.Repeat([]byte("o"), 32)
	for name, test := range map[string]struct {
		primary string
		keys    map[string][]byte
		says    string
	}{
		"no keys":          {"a", nil, `primary key "a" is not one of the keys; name one of: none`},
		"missing primary":  {"b", map[string][]byte{"a": secret}, `primary key "b" is not one of the keys; name one of: a`},
		"no primary":       {"", map[string][]byte{"a": secret}, "name one of: a"},
		"short key":        {"a", map[string][]byte{"a": secret[:16]}, `key "a" has 16 bytes; it needs 32`},
		"long key":         {"a", map[string][]byte{"a": append(other, 1)}, `key "a" has 33 bytes`},
		"short second key": {"a", map[string][]byte{"a": other, "b": secret[:31]}, `key "b" has 31 bytes`},
		"same key twice":   {"a", map[string][]byte{"a": secret, "b": secret}, `"a" and "b" are the same bytes`},
		"empty id":         {"", map[string][]byte{"": secret}, "letters, digits"},
		"key as id":        {string(secret), map[string][]byte{string(secret): secret}, "letters, digits"},
		"key as primary":   {string(secret), map[string][]byte{"a": secret}, "name one of: a"},
	} {
		_, err := seal.NewRing(test.primary, test.keys)
		checkRefusal(t, name, err, test.says)
	}
}

func TestParseRingRefuses(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(secret)
	for name, test := range map[string]struct{ text, says string }{
		"empty":            {"", "part 1 of the ring"},
		"key alone":        {key, "part 1 of the ring"},
		"second key alone": {"a:" + key + "," + key, "part 2 of the ring"},
		"swapped":          {key + ":a", "part 1 of the ring"},
		"no id":            {":" + key, "part 1 of the ring"},
		"not base64":       {"a:" + string(secret), `key "a" is not in base64`},
		"cut base64":       {"a:" + key[:43], `key "a" is not in base64`},
		"too short":        {"a:" + base64.StdEncoding.EncodeToString(secret[:24]), `key "a" has 24 bytes`},
		"empty key":        {"a:", `key "a" has 0 bytes`},
		"same id twice":    {"a:" + key + ",a:" + key, `two keys have the id "a"`},
		"trailing comma":   {"a:" + key + ",", "part 2 of the ring"},
	} {
		_, err := seal.ParseRing(test.text)
		checkRefusal(t, name, err, test.says)
	}
}

// checkRefusal demands a typed error that says what is wrong and no key.
func checkRefusal(t *testing.T, name string, err error, says string) {
	t.Helper()
	if !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %v; want an ErrKey that says: %s", name, err, says)
		return
	}
	wantNoSecret(t, name, err.Error())
}

func wantNoSecret(t *testing.T, name, text string) {
	t.Helper()
	for _, form := range []string{
		"secret", base64.StdEncoding.EncodeToString(secret)[:12],
		fmt.Sprintf("%x", secret[:8]), strings.Trim(fmt.Sprint(secret[:8]), "[]"),
	} {
		if strings.Contains(text, form) {
			t.Errorf("%s: shows a key: %s", name, text)
		}
	}
}

func TestParseRing(t *testing.T) { synctest.Test(t, testParseRing) }

func testParseRing(t *testing.T) {
	first := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("n"), 32))
	second := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("o"), 32))
	r, err := seal.ParseRing(" new:" + first + " , old:" + second + "\n")
	if err != nil {
		t.Fatal(err)
	}
	inner := memstore.New()
	add(t, sealed(t, inner, ring(t, "old")), "j", 0, "x")
	s := sealed(t, inner, r)
	wantText(t, s, "j", "x")
	if n, err := s.Rotate(t.Context()); n != 2 || err != nil {
		t.Errorf("Rotate = %d, %v; want 2, since the first key of the text is the primary", n, err)
	}
	wantText(t, sealed(t, inner, ring(t, "new")), "j", "x")
}

// However it is printed, a ring does not show its keys.
func TestRingPrintsNoKeys(t *testing.T) {
	r, err := seal.NewRing("a", map[string][]byte{"a": secret, "b": bytes.Repeat([]byte("b"), 32)})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r); got != "seal.Ring(primary a of a, b)" {
		t.Errorf("a ring prints as %q", got)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "ring", r)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "ring", r)
	texts := []string{log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, r), fmt.Sprintf(verb, struct{ R *seal.Ring }{r}), fmt.Sprintf(verb, []*seal.Ring{r}))
	}
	for _, text := range texts {
		wantNoSecret(t, "printing", text)
	}
}

// What a ring wraps opens only unchanged, with the key and the place.
func TestWrappedKeyIsBound(t *testing.T) {
	r := ring(t, "a", "b")
	wrapped, err := r.Wrap(t.Context(), secret, []byte("place"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Unwrap(t.Context(), wrapped, []byte("place")); err != nil || !bytes.Equal(got, secret) {
		t.Fatalf("Unwrap = %q, %v", got, err)
	}
	if !r.Current(wrapped) || ring(t, "b", "a").Current(wrapped) || r.Current(nil) || r.Current([]byte("plain")) {
		t.Error("Current does not tell which key wrapped it")
	}
	if _, err := r.Unwrap(t.Context(), wrapped, []byte("elsewhere")); !errors.Is(err, store.ErrKey) {
		t.Errorf("Unwrap at another place = %v", err)
	}
	for bit := range len(wrapped) * 8 {
		changed := bytes.Clone(wrapped)
		changed[bit/8] ^= 1 << (bit % 8)
		if got, err := r.Unwrap(t.Context(), changed, []byte("place")); !errors.Is(err, store.ErrKey) {
			t.Errorf("Unwrap with bit %d flipped = %q, %v", bit, got, err)
		}
	}
	for n := range wrapped {
		if got, err := r.Unwrap(t.Context(), wrapped[:n], []byte("place")); !errors.Is(err, store.ErrKey) {
			t.Errorf("Unwrap of %d bytes = %q, %v", n, got, err)
		}
	}
	for id := range 256 {
		garbage := append([]byte{1, byte(id)}, make([]byte, 400)...)
		if got, err := r.Unwrap(t.Context(), garbage, nil); !errors.Is(err, store.ErrKey) {
			t.Errorf("Unwrap of garbage = %q, %v", got, err)
		}
	}
}
