package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
)

// maxItems bounds the lists of objects in a body: each element is worth three
// bytes there, and much more work here.
const maxItems = 50_000

// typeFields has the fields of types that were decoded, since finding them takes
// longer than decoding them.
var typeFields sync.Map // from reflect.Type to []api.Field

func fieldsOf(t reflect.Type) []api.Field {
	if fields, ok := typeFields.Load(t); ok {
		return fields.([]api.Field)
	}
	fields := (&api.Info{In: t}).Fields()
	typeFields.Store(t, fields)
	return fields
}

// decodeStrict decodes all of a text, in which every object has only members that
// its type knows, spelled exactly.
func decodeStrict(data []byte, decode func(*strict.Reader) error) error {
	r, err := strict.NewReader(data)
	if err == nil {
		err = decode(r)
	}
	if err == nil {
		err = r.End()
	}
	return err
}

// decodeObject decodes an object, and returns the names of its members.
func decodeObject(r *strict.Reader, fields []api.Field, v reflect.Value) (given []string, err error) {
	err = r.Object(func(name string) error {
		i := slices.IndexFunc(fields, func(f api.Field) bool { return f.Where == api.InBody && f.Key == name })
		if i < 0 {
			return fmt.Errorf("there is no member %q", name)
		}
		given = append(given, name)
		if err := decodeValue(r, v.FieldByIndex(fields[i].Index)); err != nil {
			return fmt.Errorf("the member %q: %w", name, err)
		}
		return nil
	})
	return given, err
}

// decodeValue decodes the next value by the type of v. Raw JSON is not looked at
// twice.
func decodeValue(r *strict.Reader, v reflect.Value) error {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && r.Kind() != 'n':
		v.SetLen(0)
		return r.List(func(i int) error {
			if i == maxItems {
				return fmt.Errorf("it has more than %d elements", maxItems)
			}
			v.Set(reflect.Append(v, reflect.Zero(t.Elem())))
			if err := decodeValue(r, v.Index(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
			return nil
		})
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		_, err := decodeObject(r, fieldsOf(t), v)
		return err
	}
	raw, err := r.Raw()
	if err != nil {
		return err
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(raw)
		return nil
	}
	err = json.Unmarshal(raw, v.Addr().Interface())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("it is a %s, and has to be a %s", wrong.Value, wrong.Type)
	}
	return err
}
