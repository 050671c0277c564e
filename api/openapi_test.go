package api_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

func TestOpenAPI(t *testing.T) {
	data, err := api.OpenAPI("test")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Parameters []struct {
			Name   string
			Schema struct{ Enum []perdure.Status }
		}
	}
	if err := json.Unmarshal(doc.Paths["/v1/threads"]["get"], &list); err != nil {
		t.Fatal(err)
	}
	idle := false
	for _, p := range list.Parameters {
		idle = idle || p.Name == "status" && slices.Contains(p.Schema.Enum, perdure.Idle)
	}
	if !idle {
		t.Error("a list cannot ask for threads without a run")
	}
	n := 0
	for _, p := range doc.Paths {
		n += len(p)
	}
	if n != len(api.All()) {
		t.Errorf("%d operations of %d are in it", n, len(api.All()))
	}
}
