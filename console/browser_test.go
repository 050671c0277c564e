package console_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestConsoleInBrowser runs console/web/e2e: real servers, which this test binary
// is, and pages in a real browser. It needs Node.js with the packages of
// console/web, and Chromium; without them it is skipped, and fails in CI.
func TestConsoleInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	browser, err := findBrowser()
	if err == nil {
		_, err = os.Stat(filepath.Join("web", "node_modules", "playwright-core"))
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("Node.js, npm ci in console/web and a browser are needed: %v", err)
	}
	if err != nil {
		t.Skipf("skipped, because Node.js, npm ci in console/web and a browser are needed: %v", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	vitest := exec.CommandContext(ctx, "node", "node_modules/vitest/vitest.mjs", "run", "--config", "e2e/vitest.config.ts")
	vitest.Dir = "web"
	vitest.Env = append(os.Environ(), "PERDURE_STAGE="+program, "PERDURE_BROWSER="+browser, "NO_COLOR=1")
	vitest.WaitDelay = 10 * time.Second
	if out, err := vitest.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// findBrowser returns the path of a browser.
func findBrowser() (path string, err error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", err
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}
