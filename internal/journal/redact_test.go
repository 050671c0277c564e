package journal

import (
	"bytes"
	"encoding/json"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/perdure/perdure/internal/blob"
)

func TestARedactedEntryIsChainedAsTheWholeOne(t *testing.T) {
	var prev Hash
	for seq, body := range []string{`{}`, `{"res":["secret"]}`, `{"thread":"t","b":"\"b\":"}`} {
		e := Entry{Kind: Step, ID: NewID(), Time: 5, Run: 2, Epoch: 3, Path: `/a "b":`, Body: json.RawMessage(body)}
		data := e.Encode(prev)
		short, err := Redact(data)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(short) || bytes.Contains(short, []byte("secret")) {
			t.Errorf("redacted: %s", short)
		}
		got, err := DecodeRedacted(prev, uint64(seq+1), short)
		if err != nil {
			t.Fatal(err)
		}
		want := e
		want.Seq, want.Body = uint64(seq+1), nil
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreUnexported(Entry{})); diff != "" {
			t.Errorf("-whole +redacted:\n%s", diff)
		}
		for bit := range 8 * len(short) {
			bad := bytes.Clone(short)
			bad[bit/8] ^= 1 << (bit % 8)
			if _, err := DecodeRedacted(prev, 1, bad); err == nil {
				t.Errorf("a flip of bit %d of %s is not found", bit, short)
			}
		}
		for n := range len(short) {
			if _, err := DecodeRedacted(prev, 1, short[:n]); err == nil {
				t.Errorf("a cut at %d is not found", n)
			}
		}
		if _, err := DecodeRedacted(prev, 1, data); err == nil {
			t.Errorf("a whole entry is taken for a redacted one")
		}
		if _, err := Decode(prev, 1, short); err == nil {
			t.Errorf("a redacted entry is taken for a whole one")
		}
		prev = e.Hash
	}
	if _, err := Redact([]byte(`{"v":1,"k":"step","id":"x","b":{}}`)); err == nil {
		t.Error("an entry without a hash is redacted")
	}
}

func TestRefsNamesEveryBlobOfABody(t *testing.T) {
	n := 0
	next := func() Value {
		n++
		return Value{Blob: &blob.Ref{Hash: string(rune('a' + n - 1)), Size: int64(n)}}
	}
	set, data, fallback := next(), next(), next()
	b := Body{Value: next(), State: []Change{{Set: &set}, {Append: []Value{next(), {JSON: json.RawMessage("1")}, next()}}},
		Deps: map[string]Value{"x": next(), "y": next()}, Answer: &Answer{Value: next()},
		Ask: &Question{Data: data, Default: &Answer{Value: fallback}}, Blobs: []Blob{{Ref: *next().Blob}, {Ref: *next().Blob}}}
	first := b.Refs()
	seen := map[string]bool{}
	for _, ref := range first {
		seen[ref.Hash] = true
	}
	if want := int64(n * (n + 1) / 2); b.large() != want {
		t.Errorf("the blobs have %d bytes, not %d", want, b.large())
	}
	if len(seen) != n || len(first) != n {
		t.Errorf("of %d blobs it names %v", n, first)
	}
	for range 20 {
		if diff := gocmp.Diff(first, b.Refs()); diff != "" {
			t.Fatalf("another order:\n%s", diff)
		}
	}
	raw, err := b.Encode()
	if err != nil || bytes.Count(raw, []byte(`"hash":`)) != n {
		t.Errorf("a body has values that this test does not know: %s, %v", raw, err)
	}
}
