package journal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// filled returns a value of a type with every field set.
func filled(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(filled(t.Elem()))
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":"<\u2028>"}`))
			break
		}
		v.Set(reflect.Append(v, filled(t.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(filled(t.Key()), filled(t.Elem()))
	case reflect.Struct:
		if t == reflect.TypeFor[Value]() {
			return reflect.ValueOf(Value{JSON: json.RawMessage(`["<&>"]`)})
		}
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("json") != "-" {
				v.Field(i).Set(filled(t.Field(i).Type))
			}
		}
	case reflect.String:
		v.SetString("a \"<\n\u2028é")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-7)
	case reflect.Uint64:
		v.SetUint(7)
	}
	return v
}

// TestEveryFieldIsWritten: the fast path loses no field of a body.
func TestEveryFieldIsWritten(t *testing.T) {
	typ := reflect.TypeFor[Body]()
	for i := range typ.NumField() {
		for _, value := range []Value{{}, {JSON: json.RawMessage(`1`)}} {
			b := Body{Value: value, Took: 5}
			field := reflect.ValueOf(&b).Elem().Field(i)
			field.Set(filled(field.Type()))
			want, err := encode(&b)
			if err != nil {
				t.Fatal(err)
			}
			if raw, err := b.Encode(); err != nil || !bytes.Equal(raw, want) {
				t.Errorf("%s is written as %s, %v; want %s", typ.Field(i).Name, raw, err, want)
			}
			got, err := (&Entry{Body: want}).Read()
			if err != nil || !reflect.DeepEqual(got, b) {
				t.Errorf("%s is read as %+v, %v; want %+v", want, got, err, b)
			}
		}
	}
}

// FuzzEncode compares an entry whose body is written in place to one whose body was
// encoded before, and what is read from it to what was written.
func FuzzEncode(f *testing.F) {
	f.Add("/a", int64(0), `"x"`, "")
	f.Add("/1|b/<c>&\u2028\"\\", int64(12), `{"a":[1]}`, "digest")
	f.Add("/\xff\x7f\x00é", int64(-5), `[]`, "")
	f.Fuzz(func(t *testing.T, path string, took int64, value, input string) {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(value)) != nil || compact.Len() == 0 {
			return
		}
		text, err := json.Marshal(path)
		if got := appendText(nil, path); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%q is written as %s, want %s", path, got, text)
		}
		body := Body{Took: took, Input: input, Value: Value{JSON: compact.Bytes()}}
		raw, err := encode(&body)
		if err != nil {
			return
		}
		before := Entry{Seq: 9, Kind: Step, ID: "id", Time: 4, Run: 2, Epoch: 1, Path: path, Body: raw}
		inPlace := before
		inPlace.Body = nil
		prev := Hash{1}
		want := before.Encode(prev)
		got, err := inPlace.EncodeBody(prev, &body)
		if err != nil || !bytes.Equal(got, want) || inPlace.Hash != before.Hash || !bytes.Equal(inPlace.Body, raw) {
			t.Fatalf("written in place:\n%s, %v\nwant:\n%s", got, err, want)
		}
		e, err := Decode(prev, 9, got)
		if err != nil || !bytes.Equal(e.Body, raw) || utf8.ValidString(path) && e.Path != path {
			t.Fatalf("%s is decoded as %+v, %v", got, e, err)
		}
		first, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		e.Keep()
		e.Body = nil
		if second, err := e.Read(); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%s is kept as %+v, %v; want %+v", raw, second, err, first)
		}
	})
}

// TestKeepLeavesErrorsToRead: Read, not Keep, reports an invalid body.
func TestKeepLeavesErrorsToRead(t *testing.T) {
	for _, raw := range []string{``, `{`, `[]`, `{"att":"x"}`, strings.Repeat("[", 20000)} {
		e := Entry{Body: json.RawMessage(raw)}
		e.Keep()
		if b, err := e.Read(); err == nil {
			t.Errorf("%.20s is read as %+v", raw, b)
		}
	}
}

// FuzzHeader compares the fast path for headers to the general one.
func FuzzHeader(f *testing.F) {
	for _, line := range everyKind().lines {
		f.Add(line)
	}
	for _, line := range []string{`{"v":1,"k":"step","id":"x","t":5,"r":2,"e":3,"p":"/a","b":{}`, `{"v":1,"k":"step","id":"x","t":05,"p":"","b":`, `{"v":1,"k":"step","id":"x","t":-5,"b":`,
		`{"v":1,"k":"later","id":"x","t":5,"b":`, `{"v":1,"k":"step","id":"","t":5,"b":`, `{"v":1,"k":"step","id":"\"","t":5,"b":`, `{"v":1,"k":"step","id":"x","t":5,"p":"/a","r":2,"b":`,
		`{"v":1,"k":"step","id":"x","t":5,"r":9999999999999999999,"b":`, `{"v":1,"k":"step","id":"x","t":5e0,"b":`, `{"v":1,"k":"step","id":"x","t":5,"p":"/a`, `{"v":2,"k":"step"`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var short, long, got Entry
		n := short.plainHeader(data)
		want, err := long.anyHeader(data)
		if n > 0 && (err != nil || n != want || !reflect.DeepEqual(short, long)) {
			t.Errorf("%s is read as %+v up to %d; want %+v up to %d, %v", data, short, n, long, want, err)
		}
		if at, gotErr := got.header(data); at != want || (err == nil) != (gotErr == nil) || err == nil && !reflect.DeepEqual(got, long) {
			t.Errorf("%s is read as %+v, %v; want %+v, %v", data, got, gotErr, long, err)
		}
	})
}

// FuzzShort compares bodies read and written without encoding/json to those of
// encoding/json: both accept and refuse the same bytes, and give them the same
// meaning.
func FuzzShort(f *testing.F) {
	for _, raw := range []string{`{}`, `{"us":5}`, `{"verb":"cleanup"}`, `{"in":"d","us":7,"res":["x"]}`, `{"ref":7,"us":-3}`, `{"ref":-7}`, `{"ref":18446744073709551615}`,
		`{"state":[{"k":"n","add":-1},{"k":"t","res":true}],"spend":{"b":2,"a":1},"us":55,"res":[{"role":"x","text":"\""}]}`,
		`{"state":[{"k":"a","set":[1]},{"k":"b","del":true},{"k":"c","app":[["x"],[2],{"hash":"ab","size":3}]}]}`,
		`{"state":[{"k":"a","app":[]}],"spend":{},"res":[]}`, `{"state":[],"res":[ 1 ]}`, `{"state":[{"k":"e","edit":[{"at":1}]}]}`, `{"state":[{"k":"e","set":[ ]}]}`,
		`{"spend":{"a":1,"a":2}}`, `{"spend":{"a":1.0}}`, `{"spend":{"a":05}}`, `{"spend":{"a":-0}}`, `{"in":"\u0061"}`, "{\"in\":\"\xff\"}", "{\"in\":\"\x01\"}", "{\"in\":\"é\u2028<\"}",
		`{"in":"a","verb":"b"}`, `{"in":"a","in":"b"}`, `{"IN":"a"}`, `{"in":null,"res":null}`, `{"res":[tru]}`, `{"res":["a]}`, `{"us":5,}`, `{,"us":5}`, `{"us":5}}`, `{"us":5} `,
		`{"res":[` + strings.Repeat("[", 9998) + strings.Repeat("]", 9998) + `]}`, `{"in":"","res":[` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `]}`} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want Body
		wantErr := json.Unmarshal(raw, &want)
		e := Entry{Body: raw}
		got, err := e.parse()
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(*got, want) {
			t.Fatalf("%.200s is read as %+v, %v; want %+v, %v", raw, got, err, want, wantErr)
		}
		if wantErr != nil {
			return
		}
		compact := want // values are written as compact JSON
		for _, v := range values(&compact) {
			var b bytes.Buffer
			if json.Compact(&b, v.JSON) != nil || b.Len() == 0 {
				return
			}
			v.JSON = b.Bytes()
		}
		slow, err := encode(&compact)
		fast, fastErr := compact.Encode()
		if (err == nil) != (fastErr == nil) || !bytes.Equal(fast, slow) {
			t.Fatalf("%.200s is written as\n%s, %v; want\n%s, %v", raw, fast, fastErr, slow, err)
		}
	})
}

// values returns the values of a body that are JSON.
func values(b *Body) (all []*Value) {
	add := func(v *Value) {
		if v != nil && v.JSON != nil {
			all = append(all, v)
		}
	}
	add(&b.Value)
	for i := range b.State {
		add(b.State[i].Set)
		for j := range b.State[i].Append {
			add(&b.State[i].Append[j])
		}
	}
	return all
}

// BenchmarkBody writes and reads the body of a step that appends its result to the
// state, as the steps of agents do.
func BenchmarkBody(b *testing.B) {
	body := Body{State: []Change{{Key: "agent/transcript", Result: true}}, Spend: map[string]int64{"tokens": 123, "usd": 4}, Took: 55,
		Value: Value{JSON: json.RawMessage(`{"role":"assistant","text":"` + strings.Repeat("x", 1000) + `"}`)}}
	raw, err := body.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			body.Encode()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			(&Entry{Body: raw}).Read()
		}
	})
	b.Run("read-own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			(&Entry{Body: raw, made: true}).Read()
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encode(&body)
			json.Unmarshal(raw, new(Body))
		}
	})
}
