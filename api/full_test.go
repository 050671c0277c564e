package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/store"
)

// TestProblemSaysWhichDisk: a full archive is not a full store, and one that cannot be
// used is no internal error. What the store says stays in the log.
func TestProblemSaysWhichDisk(t *testing.T) {
	for _, c := range []struct {
		err          error
		kind         string
		status       int
		says, hushes string
	}{
		{archive.ErrFull, "full", http.StatusInsufficientStorage, "REASON", "the store has no space"},
		{archive.ErrUnavailable, "archive", http.StatusServiceUnavailable, "REASON", "store"},
		{store.ErrFull, "full", http.StatusInsufficientStorage, "its memory or a limit of its account", "REASON"},
	} {
		p := api.ProblemOf(fmt.Errorf("perdure: archiving thread t: %w: REASON", c.err))
		if p.Kind() != c.kind || p.Status != c.status || !strings.Contains(p.Detail, c.says) || strings.Contains(p.Detail, c.hushes) {
			t.Errorf("%v is %+v", c.err, p)
		}
	}
}
