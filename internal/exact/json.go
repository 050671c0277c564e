// Package exact encodes and decodes the JSON of recorded values, and refuses
// values that JSON would change. It imports internal/fault and internal/strict.
package exact

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/strict"
)

// Encode returns the JSON of a value, or ErrNotJSON if the value would not
// survive being read back into a t: an integer over 2^53 in an any, invalid
// UTF-8, half of a surrogate pair in raw JSON, a NaN, a cycle, a channel.
func Encode(v any, t reflect.Type) (json.RawMessage, error) {
	switch v := v.(type) {
	case string:
		if raw := strict.Quote(v); raw != nil {
			return raw, nil
		}
	case strict.Read: // its reader has already made the checks below
		return v.Compact()
	}
	first, err := strict.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", fault.ErrNotJSON, err)
	}
	if err := CheckDepth(first); err != nil {
		return nil, err
	}
	exact := exactType(t)
	if !exact {
		if err := strict.Text(first); err != nil {
			return nil, fmt.Errorf("%w: %w", fault.ErrNotJSON, err)
		}
	}
	if strict.Replaced(first) && badText(v) {
		return nil, fmt.Errorf("%w: a string in it is not valid UTF-8; keep bytes as []byte", fault.ErrNotJSON)
	}
	if _, raw := v.(json.RawMessage); t != nil && !exact && !raw { // raw JSON is read back as it is
		back := reflect.New(t)
		if err := json.Unmarshal(first, back.Interface()); err != nil {
			return nil, fmt.Errorf("%w: it cannot be read back: %v", fault.ErrNotJSON, err)
		}
		second, err := strict.Marshal(back.Elem().Interface())
		if err != nil || !bytes.Equal(first, second) && !strict.Same(first, second) {
			return nil, fmt.Errorf("%w: %s is read back as a different value (an integer over 2^53 in an any?)", fault.ErrNotJSON, t)
		}
	}
	return first, nil
}

// maxDepth is how deeply a value may be nested. JSON decoders give up at some
// depth, and an entry that cannot be read counts as damaged.
const maxDepth = 1000

// CheckDepth returns ErrNotJSON if raw is nested too deeply to be recorded.
func CheckDepth(raw []byte) error {
	if strict.Depth(raw) > maxDepth {
		return fmt.Errorf("%w: it is nested more than %d deep", fault.ErrNotJSON, maxDepth)
	}
	return nil
}

// exactTypes caches which types are exact: any value of theirs is read back
// unchanged, because they contain no interfaces, no raw JSON, and nothing that
// marshals itself.
var exactTypes sync.Map // of reflect.Type to bool

func exactType(t reflect.Type) bool {
	if t == nil {
		return false
	}
	if known, ok := exactTypes.Load(t); ok {
		return known.(bool)
	}
	exact := isExact(t, map[reflect.Type]bool{})
	exactTypes.Store(t, exact)
	return exact
}

func isExact(t reflect.Type, inside map[reflect.Type]bool) bool {
	if inside[t] {
		return true // a recursive type: its outer occurrence decides
	}
	inside[t] = true
	for _, custom := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t.Implements(custom) || reflect.PointerTo(t).Implements(custom) {
			return false
		}
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return true
	case reflect.Slice, reflect.Array, reflect.Pointer:
		return isExact(t.Elem(), inside)
	case reflect.Map:
		return isExact(t.Key(), inside) && isExact(t.Elem(), inside)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if (f.IsExported() || f.Anonymous) && !isExact(f.Type, inside) {
				return false
			}
			if f.Anonymous && !f.IsExported() && f.Type.Kind() == reflect.Pointer {
				return false // encoding/json writes it but cannot read it back
			}
		}
		return true
	}
	return false
}

// Decode reads a recorded value into a T. Its error says what does not fit. A
// panic in the type's own UnmarshalJSON is returned as an error too.
func Decode[T any](raw json.RawMessage) (T, error) {
	var v T
	if s, ok := any(&v).(*string); ok && len(raw) > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		*s = string(raw[1 : len(raw)-1]) // recorded JSON is valid
		return v, nil
	}
	return decode[T](raw)
}

func decode[T any](raw json.RawMessage) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			var zero T
			v, err = zero, &fault.Panicked{Value: r, Stack: string(debug.Stack())}
		}
	}()
	if raw == nil {
		return v, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, err
	}
	if err := FitsExactly(raw, reflect.TypeFor[T]()); err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

var longNumber = regexp.MustCompile(`[0-9][0-9.]{15}|[0-9][eE]`)

// anyTypes remembers the types whose values may hold an any.
var anyTypes sync.Map // of reflect.Type to bool

func holdsAny(t reflect.Type) bool {
	if known, ok := anyTypes.Load(t); ok {
		return known.(bool)
	}
	holds := isAnyBelow(t, map[reflect.Type]bool{})
	anyTypes.Store(t, holds)
	return holds
}

// isAnyBelow reports whether anyBelow may find an interface in a value of a type.
func isAnyBelow(t reflect.Type, inside map[reflect.Type]bool) bool {
	if inside[t] {
		return false // judged where it began
	}
	inside[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return isAnyBelow(t.Elem(), inside)
	case reflect.Map:
		return isAnyBelow(t.Key(), inside) || isAnyBelow(t.Elem(), inside)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && isAnyBelow(f.Type, inside) {
				return true
			}
		}
	}
	return false
}

// FitsExactly returns ErrNotJSON if reading raw into a t would change a number:
// one that lands in an any and that a float64 cannot hold.
func FitsExactly(raw json.RawMessage, t reflect.Type) error {
	if !holdsAny(t) || !longNumber.Match(raw) {
		return nil
	}
	v := reflect.New(t)
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(v.Interface()); err != nil {
		return fmt.Errorf("perdure: the recorded value does not fit %s: %w", t, err)
	}
	var number json.Number
	if anyBelow(v.Elem(), 0, func(v reflect.Value) (found, enter bool) {
		if v.Kind() != reflect.Interface {
			return false, true
		}
		n, ok := v.Interface().(json.Number)
		number = n
		return ok && !strict.ExactFloat(n), !ok
	}) {
		return fmt.Errorf("%w: %s in an any; use int64, json.Number or a string", fault.ErrNotJSON, number)
	}
	return nil
}

// anyBelow reports whether visit finds what it looks for in v or anything that
// v contains. It skips the contents of values that visit does not enter.
func anyBelow(v reflect.Value, depth int, visit func(reflect.Value) (found, enter bool)) bool {
	if !v.IsValid() || depth > maxDepth {
		return false
	}
	if found, enter := visit(v); found || !enter {
		return found
	}
	below := func(v reflect.Value) bool { return anyBelow(v, depth+1, visit) }
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return below(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if below(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if below(key) || below(value) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && below(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// badText reports whether a string in v is not valid UTF-8. Raw JSON and types
// that marshal themselves are responsible for their own text.
func badText(v any) bool {
	return anyBelow(reflect.ValueOf(v), 0, func(v reflect.Value) (found, enter bool) {
		if v.CanInterface() && v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
			switch v.Interface().(type) {
			case json.Marshaler, encoding.TextMarshaler:
				return false, false
			}
		}
		return v.Kind() == reflect.String && !utf8.ValidString(v.String()), true
	})
}

// KindOf returns the kind of JSON value that a type expects, "" if it accepts
// any kind.
func KindOf(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string"
	case t == reflect.TypeFor[json.Number]():
		return "number"
	case t == nil, t.Implements(reflect.TypeFor[json.Unmarshaler]()), reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return ""
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "string"
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return "string"
	}
	return kindNames[t.Kind()]
}

// kindNames maps Go kinds to the kinds of JSON values they expect.
var kindNames = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "string", reflect.Float32: "number", reflect.Float64: "number",
	reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.Array: "array",
	reflect.Int: "integer", reflect.Int8: "integer", reflect.Int16: "integer", reflect.Int32: "integer", reflect.Int64: "integer",
	reflect.Uint: "integer", reflect.Uint8: "integer", reflect.Uint16: "integer", reflect.Uint32: "integer", reflect.Uint64: "integer",
}

// KindOfJSON returns the kind of a JSON value.
func KindOfJSON(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	return cmp.Or(jsonKinds[raw[0]], "number")
}

// jsonKinds maps the first byte of a value to its kind.
var jsonKinds = map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}
