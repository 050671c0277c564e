package server

import (
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// streamRun is to come with server/events.go.
func (s *Server) streamRun(w http.ResponseWriter, _ *http.Request, _ *call, run *perdure.Run) error {
	return send(w, api.RunsStart.Status, run)
}
