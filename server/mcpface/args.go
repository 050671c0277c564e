package mcpface

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
)

// maxName bounds the arguments that stand in the address or the header of a request,
// together.
const maxName = 8 << 10

// members returns the members of a call's arguments, of which there may be none.
func members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if len(raw) == 0 || string(raw) == "null" {
		return all, nil
	}
	r, err := strict.NewReader(raw)
	if err == nil && r.Kind() != '{' {
		err = errors.New("they must be a JSON object")
	}
	if err == nil {
		err = r.Object(func(name string) error {
			value, err := r.Raw()
			all[name] = value
			return err
		})
	}
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, api.Invalid("the arguments: %v", err)
	}
	return all, nil
}

// take removes a member and decodes it. Without it, or if it is null, to stays as it is.
func take(all map[string]json.RawMessage, name string, to any) error {
	raw, given := all[name]
	delete(all, name)
	if !given || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return api.Invalid("the argument %s: %s", name, mismatch(raw, to, err))
	}
	return nil
}

// mismatch says why a value does not fit.
func mismatch(raw json.RawMessage, to any, err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("it has a %s where %s has to be", wrong.Value, kind(wrong.Type))
	}
	return fmt.Sprintf("%.80s is not %s", raw, kind(reflect.TypeOf(to).Elem()))
}

// kind says what JSON is decoded into a type.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer from 0 on"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	}
	if t == reflect.TypeFor[time.Time]() {
		return "a time such as 2026-01-02T15:04:05Z"
	}
	return "an object"
}

// rest returns an error if there are members left, which the tool does not know.
func rest(all map[string]json.RawMessage, known []string) error {
	for name := range all {
		return api.Invalid("there is no argument %.80q; there are %s", name, strings.Join(known, ", "))
	}
	return nil
}

// input makes the input of an operation from arguments.
func (l *line) input(all map[string]json.RawMessage) (any, error) {
	in := reflect.New(l.op.In).Elem()
	var known []string
	length := 0
	for _, f := range l.op.Fields() {
		name := argument(f)
		if name == "" {
			continue
		}
		known = append(known, name)
		raw, given := all[name]
		v := in.FieldByIndex(f.Index)
		anything := v.Type() == reflect.TypeFor[json.RawMessage]()
		given = given && (anything || string(raw) != "null")
		needed := f.Where == api.InPath || f.Where == api.InBody && !strings.Contains(f.Tag.Get("json"), ",omit")
		switch {
		case !given && f.Where == api.InPath && f.Key == "run":
			v.SetString(api.Newest)
			length += len(api.Newest)
		case !given && needed:
			return nil, api.Invalid("the argument %s is missing: %s", name, f.Tag.Get("jsonschema"))
		case !given && l.defaults[name] != nil:
			v.Set(reflect.ValueOf(l.defaults[name]).Convert(v.Type()))
		case given && v.Type() == reflect.TypeFor[api.EventID]() && len(raw) > 0 && raw[0] != '"':
			v.SetString(string(raw)) // a sequence as a number
		case given:
			if err := take(all, name, v.Addr().Interface()); err != nil {
				return nil, err
			}
			if f.Where == api.InHeader && v.IsZero() {
				return nil, api.Invalid("the argument %s is %s, which sets no condition; give a value or omit it", name, raw)
			}
		}
		delete(all, name)
		if f.Where != api.InBody {
			for _, text := range f.Texts(in) {
				length += len(text)
			}
		}
	}
	if err := rest(all, slices.Sorted(slices.Values(known))); err != nil {
		return nil, err
	}
	if length > maxName {
		return nil, api.Invalid("ids and filters of %d bytes; the limit is %d", length, maxName)
	}
	if seconds, ok := in.Interface().(api.WaitRun); ok && (seconds.Seconds < 1 || seconds.Seconds > maxWait) {
		return nil, api.Invalid("the argument seconds is 1 to %d; runs_get returns the run as it is", maxWait)
	}
	return in.Interface(), nil
}
