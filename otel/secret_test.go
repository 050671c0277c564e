package otel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/scrub"
	"github.com/perdure/perdure/otel"
)

// A secret that a run was given is in no attribute and no error of its spans, even if
// what was said is wanted.
func TestSpansHoldNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "sk-canary-0123456789"
		tel, sent := traced(otel.Options{Content: true})
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "call", func(ctx context.Context) (int, error) {
				scrub.From(ctx).Add(secret)
				perdure.Annotate(ctx, slog.String("gen_ai.tool.call.result", "the key is "+secret), slog.Any("keys", []string{secret}))
				return 0, perdure.Permanent(errors.New("refused: " + secret))
			})
		})
		k := kit.New(t, nil, perdure.Options{Observer: tel}, flow)
		k.StartOn("t", "f", 1)
		k.WaitFor("t", perdure.Failed)
		k.Stop()
		marks := 0
		for _, s := range sent.GetSpans() {
			text := fmt.Sprint(s.Attributes, s.Events, s.Status)
			for _, a := range s.Attributes {
				text += a.Value.String()
			}
			if strings.Contains(text, secret) {
				t.Errorf("%s tells the secret: %s", s.Name, text)
			}
			marks += strings.Count(text, scrub.Mark)
		}
		if marks < 4 {
			t.Errorf("the secret was removed %d times; the test looks at the wrong place", marks)
		}
	})
}
