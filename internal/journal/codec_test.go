package journal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// filled returns a value of a type with something in every field.
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

// TestEveryFieldIsWritten: no field of a body is lost by a short cut.
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

// FuzzEncode holds an entry whose body is written in place against one whose
// body was encoded before, and what is read from it against what was written.
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

// TestKeepLeavesErrorsToRead: a body that is not one is reported by whoever
// reads it.
func TestKeepLeavesErrorsToRead(t *testing.T) {
	for _, raw := range []string{``, `{`, `[]`, `{"att":"x"}`, strings.Repeat("[", 20000)} {
		e := Entry{Body: json.RawMessage(raw)}
		e.Keep()
		if b, err := e.Read(); err == nil {
			t.Errorf("%.20s is read as %+v", raw, b)
		}
	}
}

// FuzzHeader holds the short cut through headers against the way through any.
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
