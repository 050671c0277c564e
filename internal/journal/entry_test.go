package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryKindIsInTheGoldenJournal keeps everyKind complete: the tests of damage
// rely on it.
func TestEveryKindIsInTheGoldenJournal(t *testing.T) {
	seen := map[Kind]bool{}
	var prev Hash
	for i, line := range everyKind().lines {
		e, err := Decode(prev, uint64(i)+1, line)
		if err != nil {
			t.Fatal(err)
		}
		prev, seen[e.Kind] = e.Hash, true
	}
	for _, kinds := range []map[Kind]bool{workers, open, {Forked: true, Erased: true}} {
		for k := range kinds {
			if !seen[k] {
				t.Errorf("no entry of kind %s", k)
			}
		}
	}
}

// TestFormatIsStable pins the bytes of each kind of entry, which existing journals
// contain. If it fails, the format has changed and needs a new number.
func TestFormatIsStable(t *testing.T) {
	w := everyKind()
	golden(t, "kinds.jsonl", append(bytes.Join(w.lines, []byte("\n")), '\n'))
	for i, line := range w.lines {
		if !json.Valid(line) {
			t.Errorf("entry %d is not JSON: %s", i+1, line)
		}
	}
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []Entry{
		{Seq: 1, Kind: Step, ID: "x"},
		{Seq: 1, Kind: Step, ID: "x", Time: -1, Run: 1<<64 - 1, Epoch: 1<<64 - 1, Path: "/a/2|b/c", Body: []byte(`{"res":[1]}`)},
		{Seq: 7, Kind: "of a later version", ID: NewID(), Time: 1<<63 - 1, Path: "/\"\\<é\u2028😀&>\t", Body: []byte(`{"b":{"h":"x"}}`)},
		{Seq: 7, Kind: Queued, ID: "x", Body: []byte("{\"res\":[\"\xff\x00,\\\"b\\\":\"]}")},
	} {
		var prev Hash
		prev[3] = byte(e.Seq)
		line := e.Encode(prev)
		got, err := Decode(prev, e.Seq, line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if len(e.Body) == 0 {
			e.Body = []byte("{}")
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("read\n%+v, wrote\n%+v", got, e)
		}
		if again := got.Encode(prev); !bytes.Equal(again, line) {
			t.Errorf("encoded again it is\n%s\nwas\n%s", again, line)
		}
	}
}

// seal returns a line with the given header and body, and a valid hash.
func seal(prev Hash, header, body string) []byte {
	h := chain(prev, []byte(header), []byte(body))
	return fmt.Appendf(nil, `%s%s,"h":"%s"}`, header, body, h)
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	for _, header := range []string{
		`{"v":1,"k":"step","id":"x","t":5,"r":2,"p":"/a","b":`,
		`{"v":1,"new":17,"k":"step","id":"x","t":5,"r":2,"p":"/a","b":`,
		`{"v":1,"k":"step","id":"x","t":5,"r":2,"p":"/a","bb":null,"B":"b","b":`,
		`{"v":1,"k":"step","id":"x","new":{"b":[1,{"r":9}],"s":"}\"],"},"t":5,"r":2,"list":[],"p":"/a","b":`,
		`{"v":1,"p":"/a","r":2,"t":5,"id":"x","k":"step","b":`,
	} {
		e, err := Decode(Hash{}, 3, seal(Hash{}, header, `{"res":[1]}`))
		if err != nil || e.Kind != Step || e.ID != "x" || e.Time != 5 || e.Run != 2 || e.Path != "/a" || string(e.Body) != `{"res":[1]}` {
			t.Errorf("%s is read as %+v, %v", header, e, err)
		}
	}
	for _, body := range []string{
		`{"res":[1]}`,
		`{"new":{"x":[1]},"res":[1]}`,
		`{"res":[1],"new":[2]}`,
		`{"res":[1],"new":{"y":[2]}}`,
		`{"res":[1],"state":[{"k":"a","set":[2],"new":true}]}`,
		`{"res": [1]}`,
		`{ "res":[1]}`,
		`{"res":[ 1 ]}`,
		`{"res":[1]} `,
	} {
		b, err := (&Entry{Body: []byte(body)}).Read()
		if err != nil || string(b.Value.JSON) != "1" {
			t.Errorf("%s is read as the value %q, %v", body, b.Value.JSON, err)
		}
		if want := strings.Contains(body, "state"); want != (len(b.State) == 1) {
			t.Errorf("%s is read with the state %+v", body, b.State)
		}
	}
}

func TestNewerFormatIsToldFromDamage(t *testing.T) {
	for _, line := range []string{
		string(seal(Hash{}, `{"v":2,"k":"step","id":"x","t":5,"b":`, `{}`)),
		`{"v":2,"k":"step","id":"x","t":5,"b":{},"h":"of another kind"}`,
		`{"v":2,"k":{"step":1}}`,
		`{"v":17,"zip":"…`,
	} {
		th := mustFold(t, everyKind().lines[:3])
		before := tell(th)
		if _, err := th.Read(4, []byte(line)); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v, want ErrNewer", line, err)
		}
		if th.Seq != 3 || tell(th) != before {
			t.Errorf("%s moved the thread to %d: %s", line, th.Seq, tell(th))
		}
	}
	for _, line := range []string{`{"v":0,"k":"step","id":"x","t":5,"b":`, `{"v":-2,"k":"step","id":"x","t":5,"b":`,
		`{"k":"step","id":"x","t":5,"b":`, `{"k":"step","id":"x","v":2,"b":`, `{"v":1,"k":"step","id":"x","v":2,"b":`, `{"v":1,"id":"x","t":5,"b":`, `{"v":1,"k":"step","t":5,"b":`,
		`{"v":"2","k":"step","id":"x","b":`, `{"v":99999999999999999999,"k":"step","id":"x","b":`,
		`{"v":1,"k":7,"id":"x","b":`, `{"v":1,"k":"step","id":"x","t":1.5,"b":`, `{"v":1,"k":"step","id":"x","r":-1,"b":`,
		`{"v":1,"k":"step","id":"x","new":,"b":`, `{"v":1,"k":"step","id":"x",,"b":`} {
		if _, err := Decode(Hash{}, 1, seal(Hash{}, line, `{}`)); err == nil || errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v, want damage", line, err)
		}
	}
}

func TestUnknownKindMakesTheThreadForeignAndTheChainGoesOn(t *testing.T) {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t"}`)
	w.add(Queued, 0, "", `{"id":"one","flow":"f"}`)
	w.add("archived", 0, "", `[not even an object`)
	w.add(Metadata, 0, "", `{"title":"still read"}`)
	th := mustFold(t, w.lines)
	if !strings.Contains(th.Foreign, `entry 3`) || !strings.Contains(th.Foreign, `"archived"`) {
		t.Errorf("foreign: %q, want the entry and its kind", th.Foreign)
	}
	if th.Seq != 4 || th.Title != "still read" {
		t.Errorf("at %d the title is %q", th.Seq, th.Title)
	}
	if r, due := th.Next(1<<60, fitsV1); r != nil || due != 0 {
		t.Errorf("a foreign thread has something to run: %v, %d", r, due)
	}
	if Kind("archived").Known() || Erased.Open() || !Step.Known() || Step.Open() || !Nudge.Open() {
		t.Error("Known or Open is wrong")
	}
}

// damaged folds lines and expects the damage to be found at seq.
func damaged(t *testing.T, what string, lines [][]byte, seq uint64) {
	t.Helper()
	th, at, err := fold(lines)
	if err == nil || at != seq {
		t.Fatalf("%s: found at entry %d (%v), want %d", what, at, err, seq)
	}
	if th.Seq != seq-1 {
		t.Fatalf("%s: the last good entry is %d, want %d", what, th.Seq, seq-1)
	}
}

// TestEveryBitFlipIsFound flips each bit of each entry. It decodes the entry after
// the true head, as a fold does, and folds the whole journal for some.
func TestEveryBitFlipIsFound(t *testing.T) {
	w := everyKind()
	flips := 0
	var prev Hash
	for i, line := range w.lines {
		bad := bytes.Clone(line)
		for bit := range 8 * len(line) {
			bad[bit/8] ^= 1 << (bit % 8)
			_, err := Decode(prev, uint64(i)+1, bad)
			if err == nil {
				t.Fatalf("entry %d, bit %d of byte %d: not found in %s", i+1, bit%8, bit/8, bad)
			}
			if errors.Is(err, ErrNewer) && bit/8 != len(`{"v":`) {
				t.Errorf("entry %d: %v after a flip in byte %d", i+1, err, bit/8)
			}
			if flips++; flips%997 == 0 {
				lines := slices.Clone(w.lines)
				lines[i] = bad
				damaged(t, fmt.Sprintf("bit %d of entry %d", bit, i+1), lines, uint64(i)+1)
			}
			bad[bit/8] ^= 1 << (bit % 8)
		}
		e, err := Decode(prev, uint64(i)+1, line)
		if err != nil {
			t.Fatal(err)
		}
		prev = e.Hash
	}
}

func TestEveryTruncationIsFound(t *testing.T) {
	w := everyKind()
	var prev Hash
	for i, line := range w.lines {
		for n := range len(line) {
			if _, err := Decode(prev, uint64(i)+1, line[:n]); err == nil {
				t.Fatalf("entry %d cut to %d bytes is not found", i+1, n)
			}
			if _, err := Decode(prev, uint64(i)+1, line[n+1:]); err == nil {
				t.Fatalf("entry %d without its first %d bytes is not found", i+1, n+1)
			}
		}
		lines := slices.Clone(w.lines)
		lines[i] = line[:len(line)/2]
		damaged(t, fmt.Sprintf("half of entry %d", i+1), lines, uint64(i)+1)
		lines[i] = append(bytes.Clone(line), '\n')
		damaged(t, fmt.Sprintf("entry %d with a line break", i+1), lines, uint64(i)+1)
		e, _ := Decode(prev, uint64(i)+1, line)
		prev = e.Hash
	}
}

// TestLineBreakInHashIsFound replaces a character of a hash that encodes only zero
// bits by a line break, which a base64 decoder skips.
func TestLineBreakInHashIsFound(t *testing.T) {
	found := 0
	for i := range 20000 {
		e := Entry{Seq: 1, Kind: Nudge, ID: fmt.Sprint(i)}
		line := e.Encode(Hash{})
		if e.Hash[len(e.Hash)-1] != 0 {
			continue
		}
		found++
		line[len(line)-3] = '\n'
		if _, err := Decode(Hash{}, 1, line); err == nil {
			t.Fatalf("not found: %q", line)
		}
	}
	if found == 0 {
		t.Fatal("no hash ends in a zero byte")
	}
}

func TestMovedEntriesAreFound(t *testing.T) {
	w := everyKind()
	for i := range w.lines {
		seq := uint64(i) + 1
		if i+1 < len(w.lines) {
			swapped := slices.Clone(w.lines)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			damaged(t, fmt.Sprintf("entries %d and %d swapped", seq, seq+1), swapped, seq)
			damaged(t, fmt.Sprintf("entry %d missing", seq), slices.Delete(slices.Clone(w.lines), i, i+1), seq)
		}
		twice := slices.Insert(slices.Clone(w.lines), i, w.lines[i])
		damaged(t, fmt.Sprintf("entry %d twice", seq), twice, seq+1)

		// A store that skips or repeats a sequence is detected too.
		th := mustFold(t, w.lines[:i])
		for _, wrong := range []uint64{0, seq - 1, seq + 1, seq + 1000} {
			if _, err := th.Read(wrong, w.lines[i]); err == nil {
				t.Fatalf("entry %d read as number %d", seq, wrong)
			}
		}
		if _, err := th.Read(seq, w.lines[i]); err != nil {
			t.Fatalf("after errors entry %d is not read: %v", seq, err)
		}
	}
	other := &writer{}
	other.add(Created, 0, "", `{"thread":"other"}`)
	other.add(Nudge, 0, "", `{}`)
	mixed := slices.Clone(w.lines)
	mixed[1] = other.lines[1]
	damaged(t, "an entry of another thread", mixed, 2)
}

// TestRedactedEntryVerifies: the chain needs only the hash of a body.
func TestRedactedEntryVerifies(t *testing.T) {
	line := everyKind().lines[0]
	e, err := Decode(Hash{}, 1, line)
	if err != nil {
		t.Fatal(err)
	}
	header := line[:bytes.Index(line, []byte(bodyMark))+len(bodyMark)]
	if chain(Hash{}, header, e.Body) != e.Hash {
		t.Error("the hash is not that of header and body")
	}
	if a, b := NewID(), NewID(); a == b || len(a) != 16 || strings.ContainsAny(a, `"\`) {
		t.Errorf("ids %q, %q", a, b)
	}
	if len(e.Hash.String()) != hashSize {
		t.Errorf("the hash is written as %s", e.Hash)
	}
}
