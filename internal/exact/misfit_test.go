package exact_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/exact"
)

// TestMisfit says in words of JSON what does not fit.
func TestMisfit(t *testing.T) {
	type order struct {
		ID    string `json:"id"`
		Small int8   `json:"small"`
		Items []struct {
			N uint16 `json:"n"`
		} `json:"items"`
		Paid bool      `json:"paid"`
		At   time.Time `json:"at"`
		Data []byte    `json:"data"`
		Big  *int      `json:"big"`
	}
	for raw, want := range map[string]string{
		`"Hello"`:                  "an object, not a string",
		`[1]`:                      "an object, not an array",
		`{"id": 7}`:                `a string at "id", not a number`,
		`{"small": 300}`:           `an integer from -128 to 127 at "small", not 300`,
		`{"items": [{"n": -1}]}`:   `an integer from 0 to 65535 at "items.n", not -1`,
		`{"items": {}}`:            `an array at "items", not an object`,
		`{"paid": "yes"}`:          `true or false at "paid", not a string`,
		`{"id": true}`:             `a string at "id", not true or false`,
		`{"data": 1}`:              `a string in base64 at "data", not a number`,
		`{"big": 1.5}`:             `an integer at "big", not 1.5`,
		`{"at": "tomorrow"}`:       "an object: parsing time",
		`{"data": "not base64 !"}`: "an object: illegal base64",
	} {
		err := json.Unmarshal([]byte(raw), new(order))
		if err == nil {
			t.Fatalf("%s fits", raw)
		}
		if got := exact.Misfit(err, reflect.TypeFor[order]()).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: it takes %s, want %s", raw, got, want)
		}
	}
}
