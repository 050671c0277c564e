package strict

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Same reports whether two JSON texts encode the same value: the order of keys
// and the spelling of numbers do not matter.
func Same(a, b []byte) bool {
	var x, y any
	for raw, v := range map[*[]byte]*any{&a: &x, &b: &y} {
		dec := json.NewDecoder(bytes.NewReader(*raw))
		dec.UseNumber()
		if dec.Decode(v) != nil {
			return false
		}
	}
	return sameValue(x, y)
}

func sameValue(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		y, ok := y.(json.Number)
		return ok && (x == y || ExactFloat(x) && ExactFloat(y) && float(x) == float(y))
	case []any:
		y, ok := y.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case map[string]any:
		y, ok := y.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameValue)
	}
	return x == y
}

func float(n json.Number) float64 {
	f, _ := n.Float64()
	return f
}

// ExactFloat reports whether n survives a round trip through float64.
func ExactFloat(n json.Number) bool {
	f, err := n.Float64()
	if err != nil || f == 0 && strings.ContainsAny(n.String(), "eE") {
		return false // out of range, or an underflow whose exact value may be huge to compute
	}
	exact, ok := new(big.Rat).SetString(n.String())
	back, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok && back != nil && exact.Cmp(back) == 0
}
