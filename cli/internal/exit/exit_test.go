package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/store"
)

// TestCodes come from errors, whether a server or the command itself met them.
func TestCodes(t *testing.T) {
	for err, want := range map[error]int{
		errors.New("x"):             Failed,
		context.Canceled:            Interrupted,
		perdure.ErrNoThread:         NotFound,
		perdure.ErrAnswered:         Conflict,
		perdure.ErrNothingToDo:      Conflict,
		credentials.ErrUnsealed:     Failed,
		store.ErrKey:                Failed,
		perdure.ErrQuota:            Failed,
		store.ErrUnavailable:        Unavailable,
		api.ErrUnauthorized:         Auth,
		Usage(errors.New("a flag")): BadUsage,
	} {
		for _, err := range []error{err, fmt.Errorf("doing it: %w", err)} {
			if got := Code(err); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
		if p := api.ProblemOf(err); want != Interrupted && want != BadUsage && Code(p) != want {
			t.Errorf("from a server, %v: %d, want %d", p, Code(p), want)
		}
	}
}
