package api_test

import (
	"reflect"
	"testing"

	"github.com/perdure/perdure/api"
)

// FuzzField gives any text to every field that can be given as one: what is
// taken can be told as a text again, and is the same then.
func FuzzField(f *testing.F) {
	for _, text := range []string{"", "0", "-1", "+1", "1.0", "18446744073709551615", "18446744073709551616", "true", "T", "2006-01-02T15:04:05Z", "2006-01-02T15:04:05.000000001+14:00", "x\x00\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, op := range api.All() {
			for _, field := range op.Fields() {
				if field.Where == api.InBody {
					continue
				}
				in := reflect.New(op.In).Elem()
				if field.Set(in, []string{text}) != nil {
					continue
				}
				texts := field.Texts(in)
				again := reflect.New(op.In).Elem()
				if err := field.Set(again, texts); err != nil {
					t.Fatalf("%s %s: %q is told as %q: %v", op.Name, field.Key, text, texts, err)
				}
				if got := field.Texts(again); !reflect.DeepEqual(got, texts) {
					t.Fatalf("%s %s: %q is told as %q, and that as %q", op.Name, field.Key, text, texts, got)
				}
			}
		}
	})
}

func FuzzEventID(f *testing.F) {
	for _, text := range []string{"", "0", "7", "7.done", "07", "+7", "7.done.done", ".done", "7-x", "7-x.done", "7-", "-x", "18446744073709551615.done", "18446744073709551616", " 7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seq, life, done, err := api.EventID(text).Parse()
		if err == nil && string(api.IDOf(seq, life, done)) != text {
			t.Errorf("%q is %d, %q, %v", text, seq, life, done)
		}
	})
}
