// Package npm installs packages of npm for tests that use servers which others
// wrote.
package npm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const installTime = 3 * time.Minute

// Install installs what a lock file names, in a cache of the user, and returns
// the path of a file in node_modules there. Test processes that install at the
// same time do not disturb each other: each fills a folder of its own, and the
// first one to be ready gives it the name that all look for.
func Install(name string, manifest, lock []byte, file ...string) (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	folder := filepath.Join(cache, "perdure", name+"-"+hex.EncodeToString(sum[:8]))
	wanted := filepath.Join(append([]string{folder, "node_modules"}, file...)...)
	if _, err := os.Stat(wanted); err == nil {
		return wanted, nil
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
		if _, statErr := os.Stat(wanted); statErr != nil {
			return "", errors.Join(err, statErr)
		}
	}
	return wanted, nil
}

// ready reports what is missing on this machine.
func ready() error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed; it comes with Node.js", tool)
		}
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(version), "v%d.%d", &major, &minor); err != nil || major < 20 || major == 20 && minor < 15 {
		return fmt.Errorf("the version of Node.js is %s, and has to be 20.15 or later", bytes.TrimSpace(version))
	}
	return nil
}
