package aimock

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

//go:embed package.json
var manifest []byte

//go:embed package-lock.json
var lock []byte

const installTime = 3 * time.Minute

// install returns the file that node runs. Test processes that install at the
// same time do not disturb each other: each fills a folder of its own, and the
// first one to be ready gives it the name that all look for.
var install = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed; it comes with Node.js", tool)
		}
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("node --version: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(version), "v%d.%d", &major, &minor); err != nil || major < 20 || major == 20 && minor < 15 {
		return "", fmt.Errorf("the version of Node.js is %s, and has to be 20.15 or later", bytes.TrimSpace(version))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	folder := filepath.Join(cache, "perdure", "aimock-"+hex.EncodeToString(sum[:8]))
	server := filepath.Join(folder, "node_modules", "@copilotkit", "aimock", "dist", "cli.js")
	if _, err := os.Stat(server); err == nil {
		return server, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(folder), "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	err = errors.Join(
		os.WriteFile(filepath.Join(tmp, "package.json"), manifest, 0o600),
		os.WriteFile(filepath.Join(tmp, "package-lock.json"), lock, 0o600))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = tmp
	npm.WaitDelay = 10 * time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, folder); err != nil {
		if _, statErr := os.Stat(server); statErr != nil {
			return "", errors.Join(err, statErr)
		}
	}
	return server, nil
})
