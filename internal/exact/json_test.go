package exact

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

type chained struct {
	Next *chained
	Any  any
}

type ring struct {
	Next *ring
	Raw  json.RawMessage
	When time.Time
}

// TestFitsExactly reads a number that no float64 holds into types that have an any
// somewhere, and into those that have none.
func TestFitsExactly(t *testing.T) {
	const long = `12345678901234567891`
	for _, c := range []struct {
		raw  string
		into any // a pointer
		fits bool
	}{
		{long, new(any), false},
		{long, new(uint64), true},
		{long, new(json.Number), true},
		{long, new(json.RawMessage), true},
		{`["` + long + `"]`, new([]any), true},
		{`[` + long + `]`, new([]any), false},
		{`[` + long + `]`, new([1]any), false},
		{`{"a":{"b":` + long + `}}`, new(map[string]map[string]any), false},
		{`{"a":{"b":` + long + `}}`, new(map[string]map[string]uint64), true},
		{`{"Next":{"Next":{"Any":` + long + `}}}`, new(chained), false},
		{`{"Next":{"Next":{"Raw":` + long + `}}}`, new(ring), true},
		{`{"Next":{"Any":1.5e3}}`, new(*chained), true},
		{`{"Ring":null,"Any":` + long + `}`, new(struct {
			Ring *ring
			chained
		}), false},
	} {
		err := FitsExactly(json.RawMessage(c.raw), reflect.TypeOf(c.into).Elem())
		if (err == nil) != c.fits || err != nil && !errors.Is(err, fault.ErrNotJSON) {
			t.Errorf("%s in a %T: %v", c.raw, c.into, err)
		}
	}
}
