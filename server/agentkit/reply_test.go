package agentkit

import (
	"encoding/json"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

func FuzzReply(f *testing.F) {
	servertest.FuzzReply(f, []string{""}, func(ask *perdure.AskInfo, _ string, raw json.RawMessage) (api.Reply, string, error) {
		return plainReply(ask, raw)
	})
}
