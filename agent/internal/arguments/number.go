package arguments

import (
	"encoding/json"
	"strconv"
	"strings"
)

// exactNumbers returns a value with one way to write each number.
func exactNumbers(v any) any {
	return mapNumbers(v, func(n json.Number) json.Number { return json.Number(parseNumber(n).String()) })
}

// number is a decimal number in the one form 0.DIGITS × 10^exp, without zeros
// at either end of the digits; or, where its exponent is too large to compute
// with, its text.
type number struct {
	negative bool
	digits   string
	exp      int64
	text     string
}

func parseNumber(n json.Number) number {
	s := n.String()
	mantissa, e, _ := strings.Cut(strings.ToLower(s), "e")
	exp := int64(0)
	if e != "" {
		var err error
		if exp, err = strconv.ParseInt(e, 10, 64); err != nil || exp > 1<<40 || exp < -1<<40 {
			return number{text: s}
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	exp += int64(len(whole))
	trimmed := strings.TrimLeft(digits, "0")
	exp -= int64(len(digits) - len(trimmed))
	if trimmed = strings.TrimRight(trimmed, "0"); trimmed == "" {
		return number{} // also -0
	}
	return number{negative: negative, digits: trimmed, exp: exp}
}

// String returns the number as JSON, a short integer without an exponent.
func (n number) String() string {
	sign := ""
	if n.negative {
		sign = "-"
	}
	zeros := n.exp - int64(len(n.digits))
	switch {
	case n.text != "":
		return n.text
	case n.digits == "":
		return "0"
	case zeros >= 0 && zeros < 20:
		return sign + n.digits + strings.Repeat("0", int(zeros))
	}
	return sign + n.digits + "e" + strconv.FormatInt(zeros, 10)
}
