package schema

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// misfit matches the errors of the validator: where in the schema, by which keyword, and
// what is wrong.
var (
	misfit = regexp.MustCompile(`(?s)^(?:validating (\S+): )+(?:[a-zA-Z]+: )?(.*)$`)
	ratio  = regexp.MustCompile(`^-?\d+/\d+ `)
	limit  = regexp.MustCompile(` -?\d+\.\d{6}$`)
)

// Plain returns an error of [Schema.Check] for people: with the place in the value, not in
// the schema, and numbers as they are written.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	m := misfit.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	number := func(text string) string {
		if r, ok := new(big.Rat).SetString(strings.TrimSpace(text)); ok && r.IsInt() {
			return r.Num().String()
		} else if ok {
			f, _ := r.Float64()
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return strings.TrimSpace(text)
	}
	text := m[2]
	if limit.MatchString(text) {
		text = ratio.ReplaceAllStringFunc(text, func(n string) string { return number(n) + " " })
		text = limit.ReplaceAllStringFunc(text, func(n string) string { return " " + number(n) })
	}
	if at := place(m[1]); at != "" {
		text = at + ": " + text
	}
	return errors.New(text)
}

// place returns where in a value a part of its schema is about, "" for all of it.
func place(pointer string) (at string) {
	parts := strings.Split(pointer, "/")
	for i := 1; i < len(parts); i++ {
		switch parts[i] {
		case "properties":
			if i++; i < len(parts) {
				at += "." + strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
			}
		case "items":
			at += "[]"
		}
	}
	return strings.TrimPrefix(at, ".")
}
