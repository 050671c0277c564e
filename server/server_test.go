package server_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
)

func TestHealth(t *testing.T) {
	s := newSite(t, server.Options{}, perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return in, nil }))
	s.do("GET", "/healthz", "").want(200)
	var flows api.FlowList
	s.do("GET", "/v1/flows", "").want(200, &flows)
	if len(flows.Flows) != 1 || flows.Flows[0].Name != "echo" {
		t.Errorf("the flows are %v", flows)
	}
	s.do("GET", "/v1/threads/none", "").problem(404, "no-thread")
}
