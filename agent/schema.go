package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/internal/arguments"
	"github.com/perdure/perdure/internal/schema"
)

// schemaOf returns the schema of a Go type.
func schemaOf(t reflect.Type) (*schema.Schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("they are a %s; make them a struct, so that each has a name", t)
	}
	s, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, err
	}
	if err := addRules(t, s, 0); err != nil {
		return nil, err
	}
	made, err := schema.New(s)
	if err != nil {
		return nil, fmt.Errorf("the schema: %w", err)
	}
	return made, nil
}

// parseSchema returns a schema that is given as JSON.
func parseSchema(raw json.RawMessage) (*schema.Schema, error) {
	s, err := schema.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema: %w", err)
	}
	return s, nil
}

// addRules adds what the tag schema says, in structs inside structs too.
func addRules(t reflect.Type, s *jsonschema.Schema, depth int) error {
	for s != nil {
		switch t.Kind() {
		case reflect.Pointer:
		case reflect.Slice, reflect.Array:
			s = s.Items
		case reflect.Map:
			s = s.AdditionalProperties
		default:
			return addFieldRules(t, s, depth)
		}
		t = t.Elem()
	}
	return nil
}

func addFieldRules(t reflect.Type, s *jsonschema.Schema, depth int) error {
	if t.Kind() != reflect.Struct || depth > 20 {
		return nil
	}
	var errs []error
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[cmp.Or(name, f.Name)]
		if p == nil || !f.IsExported() {
			continue
		}
		if err := addRule(p, f.Tag.Get("schema")); err != nil {
			errs = append(errs, fmt.Errorf("field %s: %w", f.Name, err))
		}
		errs = append(errs, addRules(f.Type, p, depth+1))
	}
	return errors.Join(errs...)
}

func addRule(s *jsonschema.Schema, tag string) error {
	for tag != "" {
		var rule string
		if strings.HasPrefix(tag, "pattern=") {
			rule, tag = tag, ""
		} else {
			rule, tag, _ = strings.Cut(tag, ",")
		}
		key, val, _ := strings.Cut(rule, "=")
		number, numErr := strconv.ParseFloat(val, 64)
		switch key {
		case "enum":
			at := s
			for at.Items != nil { // of a list it is what its elements may be
				at = at.Items
			}
			is := func(kind string) bool { return at.Type == kind || slices.Contains(at.Types, kind) }
			for v := range strings.SplitSeq(val, "|") {
				var e any = v
				switch {
				case is("integer") || is("number"):
					n, err := strconv.ParseFloat(v, 64)
					if err != nil {
						return fmt.Errorf("schema tag: %q is not a number", v)
					}
					e = n
				case !is("string"):
					return fmt.Errorf("schema tag: enum is for texts and numbers, and lists of them")
				}
				at.Enum = append(at.Enum, e)
			}
			if is("null") {
				at.Enum = append(at.Enum, nil)
			}
			continue
		case "pattern":
			s.Pattern = val
			continue
		case "min":
			s.Minimum = &number
		case "max":
			s.Maximum = &number
		case "minlen", "maxlen":
			n := int(number)
			at := map[string]**int{"minlen": &s.MinLength, "maxlen": &s.MaxLength}
			if s.Type == "array" || s.Items != nil {
				at = map[string]**int{"minlen": &s.MinItems, "maxlen": &s.MaxItems}
			}
			*at[key] = &n
		default:
			return fmt.Errorf("schema tag: there is no rule %q; there are enum, min, max, minlen, maxlen and pattern", key)
		}
		if numErr != nil {
			return fmt.Errorf("schema tag: %s=%q is not a number", key, val)
		}
	}
	return nil
}

// validator checks answers of asks for the runtime.
type validator struct{}

var _ perdure.Validator = validator{}

func init() { perdure.RegisterValidator(validator{}) }

// Validate checks a value against a JSON Schema.
func (validator) Validate(raw, value json.RawMessage) error {
	s, err := parseSchema(raw)
	if err != nil {
		return err
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	if err := s.Check(value); err != nil || string(raw) != ruleSchema {
		return schema.Plain(err)
	}
	_, err = arguments.ParsePattern(value) // which says more than a schema can
	return err
}

// ruleSchema is the schema of a pattern, see [Rule].
const ruleSchema = `{"title":"the arguments that the rule allows","type":["object","null"]}`
