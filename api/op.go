package api

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// Scope is what a token has to allow for an operation.
type Scope string

// The scopes. They do not contain each other, but for admin, which contains
// all.
const (
	ScopeNone   Scope = ""       // no token is needed
	ScopeRead   Scope = "read"   // look
	ScopeRun    Scope = "run"    // start and control runs, send signals, remember
	ScopeAnswer Scope = "answer" // answer asks
	ScopeAdmin  Scope = "admin"  // everything, also tokens, erase and import
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
)

// Info describes an operation.
type Info struct {
	Name   string // as the OpenAPI document calls it: "runs.start"
	Method string
	Path   string // as http.ServeMux has it
	Scope  Scope
	Title  string // what it does, in a line
	Doc    string // more of it, "" if that is all
	Status int    // of success; 0 is 200

	Takes string   // media type of the body if that is not JSON
	Gives []string // media types of the answer, if not JSON alone, the default first

	In  reflect.Type // a struct
	Out reflect.Type // nil: the answer has no body
}

// Op is an operation with its types. None is the type of an answer without a
// body.
type Op[In, Out any] struct{ Info }

// None is no answer at all: 204.
type None struct{}

var registry []*Info

// All returns the operations in the order of their declaration.
func All() []*Info { return slices.Clone(registry) }

// Find returns the operation with a name, nil if there is none.
func Find(name string) *Info {
	for _, i := range registry {
		if i.Name == name {
			return i
		}
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

// Where says from where a field of an operation's input comes.
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
