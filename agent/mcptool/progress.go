package mcptool

import (
	"context"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scrub"
)

// Progress is how far a call is, as its server tells it. It reaches those who
// watch the thread as a delta, see [perdure.Delta].
type Progress struct {
	Server  string  `json:"server"`
	Tool    string  `json:"tool"`
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: not known
	Message string  `json:"message,omitempty"`
}

// maxProgress is the longest message of a progress, in bytes.
const maxProgress = 1 << 10

// follow makes the progress of a call a delta of its context, until the
// returned function is called. The token names the call to the server.
func (s *Server) follow(ctx context.Context, tool string) (token string, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	token = "perdure-" + strconv.FormatUint(s.calls, 10)
	s.progress[token] = func(p Progress) {
		p.Server, p.Tool = s.name, tool
		p.Message = clip(scrub.From(ctx).Text(p.Message), maxProgress) // before it is cut, or half of a secret stays
		perdure.Delta(ctx, p)
	}
	return token, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.progress, token)
	}
}

func (s *Server) onProgress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	token, ok := r.Params.ProgressToken.(string)
	if !ok {
		return
	}
	s.mu.Lock()
	report := s.progress[token]
	s.mu.Unlock()
	if report != nil {
		report(Progress{Done: r.Params.Progress, Total: r.Params.Total, Message: r.Params.Message})
	}
}
