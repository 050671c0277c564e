package typescript_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestClientInNode runs test/server/node.spec.ts: the built package in Node.js,
// against a server that is killed. It needs what `make ts` builds; without it, it
// is skipped, and fails in CI.
func TestClientInNode(t *testing.T) {
	runSpecs(t, "node.spec.ts")
}

// TestClientInBrowser runs test/server/browser.spec.ts: the example in a browser,
// with tokens for its users, while the server is killed.
func TestClientInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a browser")
	}
	var browser string
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if browser, err = exec.LookPath(name); err == nil {
			break
		}
	}
	need(t, err)
	runSpecs(t, "browser.spec.ts", "PERDURE_BROWSER="+browser)
}

// need skips a test that cannot run here, or fails it in CI.
func need(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("Node.js, make ts and a browser are needed: %v", err)
	}
	t.Skipf("skipped, because Node.js, make ts and a browser are needed: %v", err)
}

func runSpecs(t *testing.T, file string, env ...string) {
	t.Helper()
	_, err := exec.LookPath("node")
	need(t, err)
	for _, path := range []string{"node_modules/vitest/vitest.mjs", "dist/index.js"} {
		_, err := os.Stat(path)
		need(t, err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	vitest := exec.CommandContext(ctx, "node", "node_modules/vitest/vitest.mjs", "run", "--config", "test/server/vitest.config.ts", file)
	vitest.Env = append(append(os.Environ(), "PERDURE_STAGE="+program, "NO_COLOR=1"), env...)
	vitest.WaitDelay = 10 * time.Second
	if out, err := vitest.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
