package engine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDeltasAreReadAsJSON compares the short way to read a delta with that of
// encoding/json, for what SendDelta writes and for what others might.
func TestDeltasAreReadAsJSON(t *testing.T) {
	before := Delta{Run: "r", Path: "/a/b"}
	lines := []string{
		`{"path":"/a","run":"r","pass":1,"attempt":1,"offset":0,"data":1}`,
		`{"run":"r","path":"/a","pass":1,"attempt":1,"offset":0,"data":1,"more":2}`,
		`{"run":"r","path":"/a","pass":1,"attempt":1,"offset":0}`,
		`{"run":"r","path":"/a","pass":1.5,"attempt":1,"offset":0,"data":1}`,
		`{"run":"r","path":"/a","pass":1,"attempt":1,"offset":0,"data":}`,
		`{"run":"r","path":"/a","pass":1,"attempt":1,"offset":0,"data":{}`,
		`{"run":"r`, `{}`, ``, `null`, `17`,
	}
	for _, d := range []Delta{
		{Run: "r", Path: "/a/b", Pass: 1, Attempt: 1},
		{Run: "other", Path: `/a "quoted"\ <b>`, Pass: 1 << 40, Attempt: 7, Offset: 123456789},
		{Path: "/é\u2028"},
	} {
		for _, data := range []string{`null`, `"x"`, `{"text":"a}","data":"}"}`, `[1,2]`} {
			d.Data = json.RawMessage(data)
			whole, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			short := d
			short.Offset = 0
			if got, want := string(deltaHead(&short)), string(whole[:len(deltaHead(&short))]); got != want {
				t.Errorf("the head is %s, want %s", got, want)
			}
			lines = append(lines, string(whole))
		}
	}
	for _, line := range lines {
		var want Delta
		wantErr := json.Unmarshal([]byte(line), &want)
		got, err := ReadDelta([]byte(line), &before)
		if d := cmp.Diff(want, got); (err == nil) != (wantErr == nil) || err == nil && d != "" {
			t.Errorf("%s: %v, want %v %s", line, err, wantErr, d)
		}
	}
}
