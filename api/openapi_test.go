package api_test

import (
	"encoding/json"
	"testing"

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
	n := 0
	for _, p := range doc.Paths {
		n += len(p)
	}
	if n != len(api.All()) {
		t.Errorf("%d operations of %d are in it", n, len(api.All()))
	}
}
