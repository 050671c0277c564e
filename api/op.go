package api

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scope is the permission that an operation needs.
type Scope string

// The scopes. None includes another, except admin, which includes all.
const (
	ScopeNone   Scope = ""       // no token is needed
	ScopeAny    Scope = "any"    // a token, whatever its scopes
	ScopeRead   Scope = "read"   // look
	ScopeRun    Scope = "run"    // start and control runs, send signals, remember
	ScopeAnswer Scope = "answer" // answer asks
	ScopeAdmin  Scope = "admin"  // everything, including tokens, erase and import
)

// Scopes are the scopes that a token can have.
var Scopes = []Scope{ScopeRead, ScopeRun, ScopeAnswer, ScopeAdmin}

// The media types besides JSON.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
	TypeEvents  = "text/event-stream"
	TypeLines   = "application/x-ndjson"
	TypeBytes   = "application/octet-stream"
	TypeText    = "text/plain"
	TypeZip     = "application/zip"
)

// Info describes an operation.
type Info struct {
	Name   string // as the OpenAPI document calls it: "runs.start"
	Method string
	Path   string // as http.ServeMux has it
	Scope  Scope
	Title  string // what it does, in one line
	Doc    string // more details; may be empty
	Status int    // of success

	Takes string   // media type of the body if it is not JSON
	Gives []string // media types of the response if not only JSON, the default first

	In  reflect.Type // a struct
	Out reflect.Type // nil: the response has no body
}

// Op is an operation with its types. An operation without a response body has
// the Out type None.
type Op[In, Out any] struct{ Info }

// None is the output of operations that respond with 204 No Content.
type None struct{}

var registry []*Info

// All returns the operations in the order of their declaration.
func All() []*Info { return slices.Clone(registry) }

// Find returns the operation with a name, or nil if there is none.
func Find(name string) *Info {
	if i := slices.IndexFunc(registry, func(op *Info) bool { return op.Name == name }); i >= 0 {
		return registry[i]
	}
	return nil
}

// define adds an operation to the registry. Route is a method and a path.
func define[In, Out any](name, route string, scope Scope, title string, more ...func(*Info)) Op[In, Out] {
	method, path, ok := strings.Cut(route, " ")
	if !ok || Find(name) != nil {
		panic(fmt.Sprintf("api: operation %s (%s)", name, route))
	}
	i := Info{Name: name, Method: method, Path: path, Scope: scope, Title: title, Status: http.StatusOK, In: reflect.TypeFor[In]()}
	if out := reflect.TypeFor[Out](); out == reflect.TypeFor[None]() {
		i.Status = http.StatusNoContent
	} else {
		i.Out = out
	}
	for _, m := range more {
		m(&i)
	}
	registry = append(registry, &i)
	return Op[In, Out]{i}
}

func status(code int) func(*Info)       { return func(i *Info) { i.Status = code } }
func doc(text string) func(*Info)       { return func(i *Info) { i.Doc = text } }
func takes(media string) func(*Info)    { return func(i *Info) { i.Takes = media } }
func gives(media ...string) func(*Info) { return func(i *Info) { i.Gives = media } }

// Where says which part of a request holds a field of an operation's input.
type Where string

// The places.
const (
	InPath   Where = "path"
	InQuery  Where = "query"
	InHeader Where = "header"
	InBody   Where = "body"
)

// Field is a field of an operation's input.
type Field struct {
	reflect.StructField
	Where Where
	Key   string // its name there
}

// Fields returns the fields of an operation's input.
func (i *Info) Fields() []Field {
	var fields []Field
	for _, f := range reflect.VisibleFields(i.In) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		field := Field{StructField: f, Where: InBody}
		for _, w := range []Where{InPath, InQuery, InHeader} {
			if key := f.Tag.Get(string(w)); key != "" {
				field.Where, field.Key = w, key
			}
		}
		if field.Where == InBody {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			field.Key = name
		}
		fields = append(fields, field)
	}
	return fields
}

// HasBody reports whether an operation takes a JSON body.
func (i *Info) HasBody() bool {
	return i.Takes == "" && slices.ContainsFunc(i.Fields(), func(f Field) bool { return f.Where == InBody })
}

// Set sets a field of an input from texts: at most one, unless the field is a
// list. Without texts the field is unchanged.
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
		return errors.New("it is given more than once")
	}
	text := texts[0]
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("it is not a time such as 2006-01-02T15:04:05Z")
		}
		if t.IsZero() {
			return ErrNoTime
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
			return errors.New("it is not a sequence number")
		}
		v.SetUint(n)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return errors.New("it is not a number of at least 0")
		}
		v.SetInt(n)
	default:
		return fmt.Errorf("a %s cannot be given as text", v.Type())
	}
	return nil
}

// ErrNoTime means that a request has the zero time that programs use for "no time". It
// must not count as no limit, since a bulk job may depend on it.
var ErrNoTime = errors.New("the first second of the year 1 stands for no time; leave it out")

// Texts returns a field of an input as texts, or none if the field is zero.
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
