package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Place says where in the world of threads code runs.
type Place struct {
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"` // the thread's owner
	Thread string `json:"thread"`
	Run    string `json:"run"`
	Flow   string `json:"flow"` // that the run executes
	Path   string `json:"path"` // of the frame
}

// Here returns the place of a context. It can be called anywhere in a run.
func Here(ctx context.Context) (Place, error) {
	p, err := engine.Here(ctx)
	return Place(p), err
}
