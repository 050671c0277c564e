package servertest

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/internal/npm"
)

//go:embed testdata/clients/package.json
var clientsManifest []byte

//go:embed testdata/clients/package-lock.json
var clientsLock []byte

// Clients returns the folder of the npm packages whose clients are tested.
func Clients(t testing.TB) string {
	t.Helper()
	module, err := npm.Install("clients", clientsManifest, clientsLock, "eventsource")
	if err != nil {
		Missing(t, err)
	}
	return filepath.Dir(module)
}

// Missing skips a test that lacks a program, but not in CI.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("the proof with real clients cannot run: %v", err)
	}
	t.Skipf("skipped, because the proof with real clients cannot run: %v", err)
}
