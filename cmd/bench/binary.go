package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// overhead measures what the API adds to a start and to an answer.
func overhead(ctx context.Context, dir string) error {
	s, err := openSQLite(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Close()
	asker := perdure.NewFlow("asker", func(ctx context.Context, _ int) (bool, error) {
		return perdure.Ask[bool](ctx, "ok", perdure.Question{})
	})
	rt, err := perdure.New(ctx, s, perdure.Options{}, asker)
	if err != nil {
		return err
	}
	url, stop, err := serving(rt)
	if err != nil {
		return err
	}
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		return err
	}
	type control interface {
		Start(context.Context, perdure.StartRequest) (*perdure.Run, error)
		Wait(context.Context, string, string) (*perdure.Run, error)
		Answer(context.Context, ...perdure.AskAnswer) error
	}
	working, rest := context.WithCancel(ctx)
	defer rest()
	done := make(chan error, 1)
	go func() { done <- rt.Work(working) }()
	const n = 200
	took := map[string][]time.Duration{}
	for i := range 2 * n {
		var by control = rt
		name := "library"
		if i%2 == 1 {
			by, name = c, "api"
		}
		begun := time.Now()
		run, err := by.Start(ctx, perdure.StartRequest{Flow: "asker", Input: i})
		if err != nil {
			return err
		}
		took["start by "+name] = append(took["start by "+name], time.Since(begun))
		if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil {
			return err
		}
		if len(run.Asks) != 1 {
			return fmt.Errorf("run %s is %s", run.ID, run.Status)
		}
		begun = time.Now()
		if err := by.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}}); err != nil {
			return err
		}
		took["answer by "+name] = append(took["answer by "+name], time.Since(begun))
	}
	rest()
	for _, what := range []string{"start", "answer"} {
		lib, web := median(took[what+" by library"]), median(took[what+" by api"])
		fmt.Printf("  %-7s %6d µs by the library, %6d µs over HTTP (ratio %.1f)\n", what, lib.Microseconds(), web.Microseconds(), float64(web)/float64(lib))
	}
	return <-done
}

// binary measures the stock binary: its size, and how soon dev answers.
func binary(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "perdure")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./cmd/perdure")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	size, err := os.Stat(file)
	if err != nil {
		return err
	}
	var first []time.Duration
	for i := range 5 {
		took, err := firstByte(ctx, file, filepath.Join(dir, fmt.Sprint("dev", i)))
		if err != nil {
			return err
		}
		first = append(first, took)
	}
	hello := exec.CommandContext(ctx, file, "version")
	begun := time.Now()
	if out, err := hello.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	plain := time.Since(begun)
	dev := median(first)
	fmt.Printf("  binary  %.1f MB; perdure version %d ms, perdure dev to the first byte %d ms (ratio %.1f)\n",
		float64(size.Size())/1e6, plain.Milliseconds(), dev.Milliseconds(), float64(dev)/float64(plain))
	return nil
}

// firstByte starts dev in a folder and returns how long it takes until it
// answers.
func firstByte(ctx context.Context, file, dir string) (time.Duration, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr := l.Addr().String()
	l.Close()
	var output bytes.Buffer
	dev := exec.CommandContext(ctx, file, "dev", "--addr", addr)
	dev.Dir, dev.Stdout, dev.Stderr = dir, &output, &output
	begun := time.Now()
	if err := dev.Start(); err != nil {
		return 0, err
	}
	defer dev.Wait()
	defer dev.Process.Signal(syscall.SIGTERM)
	for range 5000 {
		resp, err := http.Get("http://" + addr + "/v1/threads")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			return time.Since(begun), err
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0, fmt.Errorf("dev does not answer: %s", output.String())
}

// newcomer measures the README's first command as a newcomer has it: with empty
// caches, so that all modules are fetched and all packages compiled.
func newcomer(ctx context.Context, dir string) error {
	caches := filepath.Join(dir, "caches")
	env := append(os.Environ(), "GOMODCACHE="+caches+"/mod", "GOCACHE="+caches+"/build", "GOFLAGS=-modcacherw")
	step := func(args ...string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = env
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return time.Since(begun), nil
	}
	build, err := step("go", "build", "-o", filepath.Join(dir, "first"), "./cmd/perdure")
	if err != nil {
		return err
	}
	demo, err := step("go", "run", "./cmd/perdure", "demo")
	if err != nil {
		return err
	}
	fmt.Printf("  go run ./cmd/perdure demo on empty caches: %.0f s to fetch and build, %.0f s for the demo (ratio %.1f)\n",
		build.Seconds(), demo.Seconds(), build.Seconds()/demo.Seconds())
	return nil
}

// command measures the API's cost and the stock binary.
func command(ctx context.Context, dir string) error {
	fmt.Printf("\nThe API, and the stock binary:\n")
	return errors.Join(overhead(ctx, dir), binary(ctx, dir), newcomer(ctx, dir))
}
