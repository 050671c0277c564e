package client_test

import (
	"reflect"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// differ says why a method is not the same over HTTP.
var differ = map[string]string{
	"Flows":     "it has to ask the server",
	"Close":     "there is nothing to close",
	"Work":      "workers are next to the store",
	"Tenant":    "the tenant is that of the token",
	"User":      "the user is that of the token",
	"Rebuild":   "it repairs a store",
	"ExportKey": "each export names it, and VerifyExport shows it",
	"Tag":       "events and threads have it as their life",
	"Life":      "it is for those who read a store in pieces",
	"Watch":     "a list is followed by events.watch",

	"Asks":   "of the API: the asks of all threads",
	"Follow": "of the API: events, deltas and the end of a run over one connection",
}

func TestClientHasTheMethodsOfARuntime(t *testing.T) {
	methods := func(t reflect.Type) map[string]reflect.Type {
		all := map[string]reflect.Type{}
		for m := range t.Methods() {
			all[m.Name] = m.Type
		}
		return all
	}
	ours, theirs := methods(reflect.TypeFor[*client.Client]()), methods(reflect.TypeFor[*perdure.Runtime]())
	same := func(a, b reflect.Type) bool {
		if a == nil || b == nil || a.NumIn() != b.NumIn() || a.NumOut() != b.NumOut() || a.IsVariadic() != b.IsVariadic() {
			return false
		}
		for i := 1; i < a.NumIn(); i++ { // the first is the receiver
			if a.In(i) != b.In(i) {
				return false
			}
		}
		for i := range a.NumOut() {
			if a.Out(i) != b.Out(i) {
				return false
			}
		}
		return true
	}
	for name := range union(ours, theirs) {
		_, excused := differ[name]
		if is := same(ours[name], theirs[name]); is == excused {
			t.Errorf("%s: the client has %v, the runtime has %v, and a difference is expected: %v", name, ours[name], theirs[name], excused)
		}
	}
	for name := range differ {
		if ours[name] == nil && theirs[name] == nil {
			t.Errorf("nobody has a method %s", name)
		}
	}
}

func union(a, b map[string]reflect.Type) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}
