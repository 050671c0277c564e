package scrub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestGuardedErrorsStayWhatTheyAre(t *testing.T) {
	const secret = "c4n4ry-secret"
	sentinel := errors.New("sentinel")
	err := Guard(t.Context(), func(ctx context.Context, _ *Set) error {
		From(ctx).Add(secret)
		return fmt.Errorf("%w: %s", sentinel, secret)
	})
	if !errors.Is(err, sentinel) || strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
		t.Errorf("%v", err)
	}
}
