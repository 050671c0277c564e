package journal

import (
	"encoding/json"
	"math"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// A body is written and read alike, whether it is parsed or not.
func TestTookIsReadAsItIsWritten(t *testing.T) {
	for _, took := range []int64{0, 1, 9, 10, 1_234_567, 999_999_999_999_999_999, math.MaxInt64} {
		for _, b := range []Body{{Took: took, Value: Value{JSON: json.RawMessage(`{"a":[1]}`)}}, {Took: took, Attempt: 2, Value: Value{JSON: json.RawMessage(`1`)}}, {Took: took}} {
			raw, err := b.Encode()
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := json.Marshal(b)
			if err != nil || string(parsed) != string(raw) {
				t.Errorf("it is written as %s, want %s, %v", raw, parsed, err)
			}
			got, err := (&Entry{Body: raw}).Read()
			if d := gocmp.Diff(b, got); d != "" || err != nil {
				t.Errorf("%s: %v %s", raw, err, d)
			}
		}
	}
	for _, raw := range []string{`{"us":05,"res":[1]}`, `{"us":,"res":[1]}`, `{"us":-3,"res":[1]}`, `{"us":5}`, `{"us":5`, `{"us":`, `{"us":5,`, `{"us":5,"res":[`, `{"us":5,"res":[1]`,
		`{"us":5,"res":[]}`, `{"us":5,"res":[1],"x":2}`, `{"us":5 ,"res":[1]}`, `{"us":99999999999999999999,"res":[1]}`, `["us":5,"res":[1]}`} {
		var want Body
		wantErr := json.Unmarshal([]byte(raw), &want)
		got, err := (&Entry{Body: json.RawMessage(raw)}).Read()
		if d := gocmp.Diff(want, got); (err == nil) != (wantErr == nil) || err == nil && d != "" {
			t.Errorf("%s is read as %+v, %v; want %+v, %v", raw, got, err, want, wantErr)
		}
	}
}
