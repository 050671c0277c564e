package console_test

import (
	"context"
	"errors"
	"os"

	"github.com/perdure/perdure"
)

// Files in the folder of the server that make the flows below go wrong.
const (
	deadlyFile = "deadly"
	brokenFile = "broken"
)

func there(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// troubleFlows are flows that fail, kill their worker, or say what deceives.
func troubleFlows() []perdure.Flow {
	deadly := perdure.NewFlow("deadly", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "explode", func(context.Context) (string, error) {
			if there(deadlyFile) {
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = self.Kill()
				}
				<-ctx.Done()
				return "", err
			}
			return "it is harmless now", nil
		})
	})
	failing := perdure.NewFlow("failing", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "deliver", func(context.Context) (string, error) {
			if there(brokenFile) {
				return "", perdure.Permanent(errors.New("the supplier is closed"))
			}
			return "delivered", nil
		})
	})
	echo := perdure.NewFlow("echo", func(ctx context.Context, text string) (string, error) {
		return perdure.Step(ctx, "repeat", func(context.Context) (string, error) { return text, nil })
	})
	return []perdure.Flow{deadly, failing, echo}
}
