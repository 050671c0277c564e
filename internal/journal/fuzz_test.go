package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// FuzzDecode: any bytes are an entry or an error, and an accepted entry keeps its
// meaning when it is written again.
func FuzzDecode(f *testing.F) {
	var prev Hash
	for i, line := range everyKind().lines {
		f.Add(prev[:], line)
		e, err := Decode(prev, uint64(i)+1, line)
		if err != nil {
			f.Fatal(err)
		}
		prev = e.Hash
	}
	for _, line := range []string{``, `{`, `{"`, `{"v":`, `{"v":1,"b":`, `{"v":1,"\`, `{"v":1,"k":"\"`, `{"v":1,"x":[[{{`, `{"v":1,"x":]`} {
		f.Add(prev[:], []byte(line))
		f.Add(prev[:], append([]byte(line), bytes.Repeat([]byte("h"), 60)...))
	}
	f.Fuzz(func(t *testing.T, head, data []byte) {
		var prev Hash
		copy(prev[:], head)
		e, err := Decode(prev, 7, data)
		// The hash hardly ever fits: try the same header with one that does.
		if err != nil {
			if n, bad := e.header(data); bad == nil && n <= len(data) {
				data = seal(prev, string(data[:n]), string(data[n:]))
				e, err = Decode(prev, 7, data)
			}
		}
		if err != nil {
			return
		}
		body, err := e.Read()
		var slow Body
		if json.Unmarshal(e.Body, &slow) == nil && (err != nil || !reflect.DeepEqual(body, slow)) {
			t.Errorf("%s is read as %+v, %v; without the short cut as %+v", e.Body, body, err, slow)
		}
		if !bytes.ContainsAny(data, `\`) && json.Valid(fmt.Appendf(nil, "%q", e.Path)) {
			again := e
			line := again.Encode(prev)
			if got, err := Decode(prev, 7, line); err != nil || got.Kind != e.Kind || got.Run != e.Run || got.Epoch != e.Epoch || got.Time != e.Time {
				t.Errorf("%s is written as %s, %v", data, line, err)
			}
		}
	})
}

// script folds arbitrary lines "kind run epoch path body", and returns the thread
// and how many lines were refused.
func script(t *testing.T, text string) (*Thread, int) {
	th, refused := NewThread(), 0
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n")+"     ", " ", 5)
		e := Entry{Seq: th.Seq + 1, Kind: Kind(words[0]), ID: fmt.Sprintf("i%d", th.Seq+1), Path: words[3], Body: []byte(strings.TrimSpace(words[4]))}
		e.Run, _ = strconv.ParseUint(words[1], 10, 64)
		e.Epoch, _ = strconv.ParseUint(words[2], 10, 64)
		e.Time = int64(e.Epoch * 1000)
		seq, head := th.Seq, th.Head
		if _, err := th.Read(e.Seq, e.Encode(th.Head)); err != nil {
			refused++
			if th.Seq != seq || th.Head != head {
				t.Fatalf("%q: the error %v moved the thread from %d to %d", line, err, seq, th.Seq)
			}
		}
		ask(th)
	}
	return th, refused
}

// ask calls every query of a thread.
func ask(th *Thread) {
	th.Next(th.Time, fitsV1)
	th.Receiver("m")
	th.Active()
	th.Heard("k")
	for _, r := range th.Runs {
		r.Due()
		r.Resumes()
		r.DumpsAt()
		th.Run(r.N)
	}
	tell(th)
}

// FuzzThread: no sequence of entries with a valid chain makes the fold panic, or
// give another result the second time.
func FuzzThread(f *testing.F) {
	files, err := filepath.Glob("testdata/fold/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for table := range strings.SplitSeq(string(data), "\n# ") {
			text, epoch := "created 0 0  {}\n", 0
			for line := range strings.Lines(table) {
				if line[0] == '\t' || line[0] == '#' || strings.TrimSpace(line) == "" {
					continue
				}
				head, body, _ := strings.Cut(strings.TrimSpace(line), " {")
				words := strings.Fields(head)
				run, at, path := 0, 0, ""
				for _, word := range words[1:] {
					switch word[0] {
					case '@':
						run = 2
					case '/':
						path = word
					}
				}
				if words[0] == string(Claimed) {
					epoch++
				}
				if !Kind(words[0]).Open() {
					at = epoch
				}
				text += fmt.Sprintf("%s %d %d %s {%s\n", words[0], run, at, path, body)
			}
			f.Add(text)
		}
	}
	f.Add("queued 0 0  {\"id\":\"a\"}\nclaimed 1 1  {}\nasked 1 1 /q {}\nasked 1 1 q {\"ask\":{}}\nstep 1 1 // {\"ref\":3}\nstep 1 1 /999999999|x/ {\"att\":-9,\"due\":-1}\n")
	f.Add("queued 0 0  {}\nqueued 0 0  {\"policy\":\"steer\"}\nclaimed 1 18446744073709551615  {}\ntook 1 0 |/| {\"ref\":18446744073709551615}\nended 1 0  {\"status\":\"failed\"}\nretried 1 0\nretried 2 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return
		}
		th, refused := script(t, text)
		again, refusedAgain := script(t, text)
		if refused != refusedAgain || !reflect.DeepEqual(th, again) {
			t.Errorf("the same entries fold to\n%s and\n%s", tell(th), tell(again))
		}
	})
}

// TestSpanAgreesWithJSON: span finds the end of every JSON value.
func TestSpanAgreesWithJSON(t *testing.T) {
	for _, value := range []string{`1`, `-1.5e9`, `null`, `""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"[{,:]}"`, `[]`, `{}`, `[[],{}]`,
		`{"a":[1,{"b":"]"}],"c":"\\"}`, `"\u0022"`, `["\\","\"",{"\\\"":0}]`} {
		for _, rest := range []string{`,"x":1}`, `}`, `]`, `:`} {
			if got := span([]byte("xx"+value+rest), 2); got != 2+len(value) {
				t.Errorf("%s%s: the value ends at %d, want %d", value, rest, got-2, len(value))
			}
		}
		body := Body{Value: Value{JSON: []byte(value)}}
		fast, err := body.Encode()
		var slow bytes.Buffer
		enc := json.NewEncoder(&slow)
		enc.SetEscapeHTML(false)
		if err != nil || enc.Encode(&body) != nil || string(fast)+"\n" != slow.String() {
			t.Errorf("a body of %s is written as %s, %v; without the short cut as %s", value, fast, err, &slow)
		}
		back, err := (&Entry{Body: fast}).Read()
		if err != nil || !reflect.DeepEqual(back, body) {
			t.Errorf("%s is read as %+v, %v", fast, back, err)
		}
	}
	for _, text := range []string{``, `"`, `"\"`, `[`, `[[]`, `{"]}`, `1`} {
		if got := span([]byte(text), 0); got != -1 {
			t.Errorf("%s ends at %d", text, got)
		}
	}
}

// BenchmarkFold reads 10 000 outcomes of 1 KiB. Compare it with the hash alone,
// which is the least that it can cost.
func BenchmarkFold(b *testing.B) {
	const steps = 10000
	for _, c := range []struct{ name, body string }{
		{"text", `{"res":["` + strings.Repeat("x", 1024) + `"]}`},
		{"list", `{"res":[[` + strings.Repeat("12345,", 170) + `0]]}`},
		{"state", `{"state":[{"k":"n","add":1}],"res":["` + strings.Repeat("x", 1024) + `"]}`},
	} {
		w := &writer{}
		w.add(Created, 0, "", `{"thread":"t"}`)
		w.add(Queued, 0, "", `{"id":"a","flow":"f"}`)
		w.add(Claimed, 2, "", `{"worker":"w"}`)
		size := int64(0)
		for i := range steps {
			w.add(Step, 2, fmt.Sprintf("/step-%d", i), c.body)
			size += int64(len(w.lines[len(w.lines)-1]))
		}
		b.Run(c.name+"/fold", func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if th, at, err := fold(w.lines); err != nil || th.Runs[0].Steps != steps {
					b.Fatal(at, err)
				}
			}
		})
		b.Run(c.name+"/sha256", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				for _, line := range w.lines {
					sha256.Sum256(line)
				}
			}
		})
	}
}
