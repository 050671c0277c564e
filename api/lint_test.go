package api_test

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/npm"
)

//go:embed testdata/redocly/package.json
var manifest []byte

//go:embed testdata/redocly/package-lock.json
var lock []byte

// TestOpenAPIIsGoodForOthers asks a linter that others wrote.
func TestOpenAPIIsGoodForOthers(t *testing.T) {
	script, err := npm.Install("redocly", manifest, lock, "@redocly", "cli", "bin", "cli.js")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the linter cannot run: %v", err)
		}
		t.Skipf("skipped, because the linter cannot run: %v", err)
	}
	doc, err := api.OpenAPI("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// Schemas of events are used by streams only, which no reference shows.
	lint := exec.CommandContext(ctx, "node", script, "lint", "--max-problems=20", "--skip-rule=no-unused-components", file)
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	lint.Dir = t.TempDir()
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
