package exact

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Misfit is why JSON is not that of a type, an error of encoding/json, in the words of
// JSON: what is expected where, and what is there instead. Senders know no Go types.
func Misfit(err error, t reflect.Type) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || wrong.Type == nil {
		return fmt.Errorf("%s: %w", kind(t), err)
	}
	at := ""
	if wrong.Field != "" {
		at = fmt.Sprintf(" at %q", wrong.Field)
	}
	given, number := strings.CutPrefix(wrong.Value, "number ")
	switch {
	case number:
	case given == "bool":
		given = "true or false"
	case given == "array", given == "object":
		given = "an " + given
	default:
		given = "a " + given
	}
	return fmt.Errorf("%s%s, not %s", kind(wrong.Type), at, given)
}

// kind says what JSON is decoded into a type.
func kind(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Interface:
		return "another value"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if t.Bits() < 64 {
			return fmt.Sprintf("an integer from %d to %d", int64(-1)<<(t.Bits()-1), int64(1)<<(t.Bits()-1)-1)
		}
		return "an integer"
	}
	return "something else"
}
