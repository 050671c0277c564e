package cli

import (
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// A program that does not link the exporter says so, and what to do.
func TestOTLPNeedsTheExporter(t *testing.T) {
	p := stored(t)
	for _, command := range []string{"serve", "worker"} {
		p.run("", command, "--otlp", "http://127.0.0.1:4318").want(exit.BadUsage, "import github.com/perdure/perdure/otel/otlp")
	}
}
