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
		perdure.ErrAnswer:           BadUsage,
		perdure.ErrNothingToDo:      Conflict,
		credentials.ErrUnsealed:     Failed,
		store.ErrBackup:             Conflict,
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
		if p := api.ProblemOf(err); want != Interrupted && !errors.As(err, new(*Error)) && Code(p) != want {
			t.Errorf("from a server, %v: %d, want %d", p, Code(p), want)
		}
	}
}

func TestCodeOfAGateway(t *testing.T) {
	for status, want := range map[int]int{302: Unavailable, 404: Failed, 429: Unavailable, 502: Unavailable, 521: Unavailable} {
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example")
			http.Error(w, "no upstream", status)
		}))
		c, err := client.New(gateway.URL, client.Options{Attempts: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = client.Do(t.Context(), c, api.HealthGet, api.Nothing{}); Code(err) != want {
			t.Errorf("%d: %v: %d, want %d", status, err, Code(err), want)
		}
		gateway.Close()
	}
}
