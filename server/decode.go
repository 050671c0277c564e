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

// decode decodes a member. Members of objects inside it are matched exactly,
// as those of the body are.
func decode(data json.RawMessage, v reflect.Value) error {
	t := v.Type()
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return errors.New("it has to be a list")
		}
		if len(items) > maxItems {
			return fmt.Errorf("it has more than %d elements", maxItems)
		}
		list := reflect.MakeSlice(t, len(items), len(items))
		for i, item := range items {
			if err := decode(item, list.Index(i)); err != nil {
				return fmt.Errorf("element %d: %v", i, err)
			}
		}
		v.Set(list)
		return nil
	}
	if t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]() {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil || members == nil {
			return errors.New("it has to be an object")
		}
		fields := fieldsOf(t)
		for name := range members {
			if !slices.ContainsFunc(fields, func(f api.Field) bool { return f.Key == name }) {
				return fmt.Errorf("there is no member %q", name)
			}
		}
		for _, f := range fields {
			if value, there := members[f.Key]; there {
				if err := decode(value, v.FieldByIndex(f.Index)); err != nil {
					return fmt.Errorf("member %q: %v", f.Key, err)
				}
			}
		}
		return nil
	}
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("it is a %s, and has to be a %s", wrong.Value, wrong.Type)
		}
		return err
	}
	return nil
}
