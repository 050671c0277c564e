package server_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

func TestHealth(t *testing.T) {
	s := servertest.New(t, server.Options{}, perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return in, nil }))
	s.Do("GET", "/healthz", "").Want(200)
	var flows api.FlowList
	s.Do("GET", "/v1/flows", "").Want(200, &flows)
	if len(flows.Flows) != 1 || flows.Flows[0].Name != "echo" {
		t.Errorf("the flows are %v", flows)
	}
	s.Do("GET", "/v1/threads/none", "").Problem(404, "no-thread")
}
