package exit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/store"
)

// TestCodes come from errors, whether a server or the command itself met them.
func TestCodes(t *testing.T) {
	for err, want := range map[error]int{
		errors.New("x"):             Failed,
		context.Canceled:            Interrupted,
		perdure.ErrNoThread:         NotFound,
		perdure.ErrNoFlow:           NotFound,
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

func TestCodeOfAGateway(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no upstream", http.StatusBadGateway) }))
	defer gateway.Close()
	c, err := client.New(gateway.URL, client.Options{Attempts: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.Do(t.Context(), c, api.HealthGet, api.Nothing{}); Code(err) != Unavailable {
		t.Errorf("%v: %d, want %d", err, Code(err), Unavailable)
	}
}
