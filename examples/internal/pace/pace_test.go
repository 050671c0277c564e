package pace_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/examples/internal/pace"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

var model = script.Must(script.Parse("pace", []byte(`{"default": {"text": ["a", "b", "c"]}}`)))

var request = &llm.Request{Messages: []llm.Message{llm.User("hello")}}

// TestWaitsBeforeEachPiece has three pieces and the end.
func TestWaitsBeforeEachPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r, err := llm.Collect(pace.Model(model, time.Second).Generate(t.Context(), request))
		if err != nil || r.Message.Text() != "abc" || time.Since(begin) != 4*time.Second {
			t.Errorf("got %+v, %v after %v", r, err, time.Since(begin))
		}
	})
}

// TestEndsWithItsContext cancels in the second piece.
func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		pieces := 0
		var last error
		for _, err := range pace.Model(model, time.Second).Generate(ctx, request) {
			pieces++
			last = err
		}
		if pieces != 2 || !errors.Is(last, context.DeadlineExceeded) {
			t.Errorf("%d pieces, the last with %v", pieces, last)
		}
	})
}
