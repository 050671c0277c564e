package api

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Set gives a field of an input the value that texts stand for: there is at
// most one unless the field is a list. No text leaves it as it is.
func (f Field) Set(in reflect.Value, texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	v := in.FieldByIndex(f.Index)
	if v.Type() == reflect.TypeFor[[]string]() {
		v.Set(reflect.ValueOf(slices.Clone(texts)))
		return nil
	}
	if len(texts) > 1 {
		return errors.New("it is there more than once")
	}
	text := texts[0]
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("it is no time such as 2006-01-02T15:04:05Z")
		}
		v.Set(reflect.ValueOf(t))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("it is neither true nor false")
		}
		v.SetBool(b)
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return errors.New("it is no sequence number")
		}
		v.SetUint(n)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return errors.New("it is no number from 0")
		}
		v.SetInt(n)
	default:
		return fmt.Errorf("a %s cannot be given as a text", v.Type())
	}
	return nil
}

// Texts returns a field of an input as texts, none if it has its zero value.
func (f Field) Texts(in reflect.Value) []string {
	v := in.FieldByIndex(f.Index)
	if v.IsZero() {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return []string{x.UTC().Format(time.RFC3339Nano)}
	case []string:
		return slices.Clone(x)
	}
	return []string{fmt.Sprint(v.Interface())}
}
