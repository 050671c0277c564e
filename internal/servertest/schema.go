package servertest

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/perdure/perdure/api"
)

// document is the OpenAPI document, with its schemas ready for use.
type document struct {
	mux     *http.ServeMux // from a request to the name of its operation
	paths   map[string]map[string]described
	defs    map[string]json.RawMessage
	mu      sync.Mutex
	schemas map[string]*jsonschema.Resolved
}

type described struct {
	OperationID string `json:"operationId"`
	Responses   map[string]struct {
		Ref     string `json:"$ref"`
		Content map[string]struct{ Schema json.RawMessage }
	}
}

var openDocument = sync.OnceValues(func() (*document, error) {
	data, err := api.OpenAPI("test")
	if err != nil {
		return nil, err
	}
	data = bytes.ReplaceAll(data, []byte("#/components/schemas/"), []byte("#/$defs/"))
	var doc struct {
		Paths      map[string]map[string]described
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	d := &document{mux: http.NewServeMux(), paths: doc.Paths, defs: doc.Components.Schemas, schemas: map[string]*jsonschema.Resolved{}}
	for _, op := range api.All() {
		d.mux.HandleFunc(op.Method+" "+op.Path, func(http.ResponseWriter, *http.Request) {})
	}
	return d, nil
})

// reference matches a reference to a schema of the document.
var reference = regexp.MustCompile(`"#/\$defs/(\w+)"`)

// gather adds the schemas that a schema refers to, at any depth.
func (d *document) gather(schema json.RawMessage, into map[string]json.RawMessage) {
	for _, m := range reference.FindAllSubmatch(schema, -1) {
		if name := string(m[1]); into[name] == nil {
			into[name] = d.defs[name]
			d.gather(d.defs[name], into)
		}
	}
}

// resolve returns a schema of the document, ready for use.
func (d *document) resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.schemas[string(schema)]; r != nil {
		return r, nil
	}
	defs := map[string]json.RawMessage{}
	d.gather(schema, defs)
	all, err := json.Marshal(map[string]any{"$defs": defs, "allOf": []json.RawMessage{schema}})
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(all, &s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	if err == nil {
		d.schemas[string(schema)] = r
	}
	return r, err
}

// CheckSchema fails unless an answer is as the OpenAPI document says. Answers of
// routes that are not in it are not looked at.
func CheckSchema(t testing.TB, r *http.Request, got *Reply) {
	t.Helper()
	status, body := got.Status, got.Body
	d := Must(openDocument())(t)
	_, pattern := d.mux.Handler(r)
	method, path, ok := strings.Cut(pattern, " ")
	if !ok || r.Method == http.MethodHead {
		return
	}
	op, ok := d.paths[strings.ReplaceAll(path, "...}", "}")][strings.ToLower(method)]
	if !ok {
		t.Fatalf("%s is not in the OpenAPI document", pattern)
	}
	media, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	schema := json.RawMessage(`{"$ref":"#/$defs/Problem"}`)
	if response, told := op.Responses[strconv.Itoa(status)]; told {
		if len(response.Content) == 0 {
			if len(body) > 0 {
				t.Errorf("%s answers %d with a body: %s", op.OperationID, status, body)
			}
			return
		}
		content, told := response.Content[media]
		if !told {
			t.Errorf("%s answers %d with %q, which the OpenAPI document does not know", op.OperationID, status, media)
			return
		}
		schema = content.Schema
	} else if status < 300 && status != http.StatusNoContent || status >= 300 && media != api.TypeProblem {
		t.Errorf("%s answers %d with %q, which the OpenAPI document does not know", op.OperationID, status, media)
		return
	}
	if schema == nil || media != api.TypeJSON && media != api.TypeProblem {
		return
	}
	resolved, err := d.resolve(schema)
	if err != nil {
		t.Fatalf("the schema of %s: %v", op.OperationID, err)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%s answers no JSON: %v", op.OperationID, err)
		return
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s answers %d with what the OpenAPI document does not allow: %v\n%s", op.OperationID, status, err, body)
	}
}
