package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/perdure/perdure/internal/npm"
)

const (
	langGraphGraphNotes = "a StateGraph of one node in a loop, its results in a channel with a reducer that appends, durability \"sync\". SqliteSaver stores each checkpoint with all channels. DeltaChannel, which is beta, would store less."
	langGraphTasksNotes = "the functional API, entrypoint and task, durability \"sync\"; results are stored as writes of one checkpoint.\n  Both: better-sqlite3 has synchronous=NORMAL in WAL mode by default, here it is FULL. One process of Node, the clients are promises. The wait is interrupt."
)

var (
	//go:embed langgraph.mjs
	langGraphScript []byte
	//go:embed package.json
	langGraphManifest []byte
	//go:embed package-lock.json
	langGraphLock []byte
)

// langGraph returns the command of the script, with graph or tasks as the way to do
// steps, and installs what it needs once.
func langGraph(way string) func() ([]string, string, error) {
	return func() ([]string, string, error) {
		script, err := langGraphInstalled()
		var manifest struct{ Dependencies map[string]string }
		if err == nil {
			err = json.Unmarshal(langGraphManifest, &manifest)
		}
		return []string{"node", script, way}, manifest.Dependencies["@langchain/langgraph"], err
	}
}

// langGraphInstalled installs the packages in a cache of the user, builds the native
// one if it has not been, and returns the path of the script beside them.
var langGraphInstalled = sync.OnceValues(func() (string, error) {
	native, err := npm.Install("peers-langgraph", langGraphManifest, langGraphLock, "better-sqlite3")
	if err != nil {
		return "", err
	}
	folder := filepath.Dir(filepath.Dir(native))
	if _, err := os.Stat(filepath.Join(native, "build", "Release", "better_sqlite3.node")); err != nil {
		fmt.Fprintln(os.Stderr, "building better-sqlite3, which takes minutes, once")
		build := exec.Command("npm", "rebuild", "better-sqlite3")
		build.Dir = folder
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm rebuild better-sqlite3: %w: %s", err, lastLine(string(out)))
		}
	}
	script := filepath.Join(folder, "langgraph.mjs")
	return script, os.WriteFile(script, langGraphScript, 0o600)
})
