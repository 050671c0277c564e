package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
)

// consoleFigures are what console/web/bench.mjs prints: milliseconds and bytes.
type consoleFigures struct {
	List   struct{ Paint, Shown, Longest, Scrolled, Before, After float64 }
	Thread struct{ Shown, Paint, Longest, Heap []float64 } // of several openings, sorted
}

// inBrowser measures the console: a list of 5000 threads, live, and a thread of 10 000 events.
func inBrowser(ctx context.Context, dir string) error {
	web := filepath.Join("console", "web")
	if _, err := os.Stat(filepath.Join(web, "node_modules", "playwright-core")); err != nil {
		fmt.Println("console: not measured, because it needs Node.js, Chromium, and make console, from the root of the repository")
		return nil
	}
	return inStore(ctx, dir, func(s store.Store, _ string) error {
		if _, err := manyThreads(ctx, s, 5000); err != nil {
			return err
		}
		rt, stop, err := working(ctx, s)
		if err != nil {
			return err
		}
		defer stop()
		if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "plain-steps", Thread: "long", Input: work{9990, 200}}); err != nil {
			return err
		}
		if run, err := rt.Wait(ctx, "long", ""); err != nil || run.Status != perdure.Succeeded {
			return errors.Join(err, fmt.Errorf("the long thread is %v", run))
		}
		mux := http.NewServeMux()
		mux.Handle("/", server.New(rt, server.Options{}))
		mux.Handle("/console/", console.Handler(console.Options{}))
		site := httptest.NewServer(mux)
		defer site.Close()
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, "node", "bench.mjs", site.URL+"/console/")
		cmd.Dir, cmd.Stderr = web, &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("bench.mjs: %w\n%s", err, stderr.String())
		}
		var f consoleFigures
		if err := json.Unmarshal(out, &f); err != nil {
			return err
		}
		fmt.Printf("console, a list of 5000 threads: first paint after %.0f ms, rows after %.0f ms, longest task %.0f ms to open and %.0f ms to scroll\n", f.List.Paint, f.List.Shown, f.List.Longest, f.List.Scrolled)
		middle := func(sorted []float64) float64 { return sorted[len(sorted)/2] }
		opened := f.Thread.Shown
		fmt.Printf("console, a thread of 10 000 events: opened in %.0f to %.0f ms, first paint after %.0f ms, longest task %.0f ms, heap %.1f MB (medians of %d)\n", opened[0], opened[len(opened)-1], middle(f.Thread.Paint), middle(f.Thread.Longest), middle(f.Thread.Heap)/1e6, len(opened))
		atMost("opening a thread of 10 000 events, ms, median", middle(opened), 1000)
		atMost("heap of the live list after 2400 runs of 5 steps, compared with 400", f.List.After/f.List.Before, 1.25)
		return nil
	})
}
