package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
)

// overHTTP measures event streams.
func overHTTP(ctx context.Context, dir string) error {
	fmt.Printf("\nEvent streams over HTTP on sqlitestore:\n")
	if err := replayStream(ctx, dir, 100_000); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if err := fanOut(ctx, dir, 1000, 200); err != nil {
		return fmt.Errorf("fan-out: %w", err)
	}
	return nil
}

// serve serves a runtime's API.
func serve(rt *perdure.Runtime) *httptest.Server {
	s := httptest.NewUnstartedServer(nil)
	s.Config = server.New(rt, server.Options{}).HTTPServer()
	s.Start()
	return s
}

// readStream calls fn with the data of each event of a thread's stream until fn
// returns false.
func readStream(ctx context.Context, url string, fn func(data []byte) bool) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && !fn(data) {
			return nil
		}
	}
}

// longThread puts a thread with so many events into a store.
func longThread(ctx context.Context, s store.Store, events int) error {
	return makeInMemory(ctx, s, func(rt *perdure.Runtime) error {
		for last := 0; last < events; {
			if err := complete(ctx, rt, "long", "plain-steps", work{min(2000, events-last), 200}); err != nil {
				return err
			}
			t, err := rt.Get(ctx, "long")
			if err != nil {
				return err
			}
			last = int(t.Seq)
		}
		return nil
	})
}

// replayStream measures how fast a stream delivers a past of so many events.
func replayStream(ctx context.Context, dir string, events int) error {
	return inStore(ctx, dir, func(s store.Store, _ string) error {
		if err := longThread(ctx, s, events); err != nil {
			return err
		}
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"})
		if err != nil {
			return err
		}
		web := serve(rt)
		defer web.Close()
		var rates, plain, allocs []float64
		for range 3 {
			begin, n := time.Now(), 0
			for _, err := range rt.Events(ctx, "long", perdure.EventOptions{Replay: true}) {
				if err != nil {
					return err
				}
				if n++; n == events {
					break
				}
			}
			plain = append(plain, float64(n)/time.Since(begin).Seconds())
			runtime.GC()
			before := mallocs()
			begin, n = time.Now(), 0
			err := readStream(ctx, web.URL+"/v1/threads/long/events", func([]byte) bool { n++; return n < events })
			if err != nil {
				return err
			}
			took := time.Since(begin)
			allocs = append(allocs, float64(mallocs()-before)/float64(n))
			rates = append(rates, float64(n)/took.Seconds())
		}
		fmt.Printf("replay of %d events: %.0f events/s, %.1f allocations an event\n", events, median(rates), median(allocs))
		expect("replay by a stream ÷ by Runtime.Events", median(rates)/median(plain), 0.3)
		return nil
	})
}

// fanOut measures how long an event takes to many readers of one thread, each
// with a connection of its own.
func fanOut(ctx context.Context, dir string, readers, events int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return inRuntime(ctx, dir, func(_ store.Store, rt *perdure.Runtime) error {
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "wide", Flow: "steps", Input: 1}); err != nil {
			return err
		}
		web := serve(rt)
		defer web.Close()
		var mu sync.Mutex
		var delays, appends series
		var ready, over sync.WaitGroup
		for range readers {
			ready.Add(1)
			over.Go(func() {
				var own []time.Duration
				first := true
				err := readStream(ctx, web.URL+"/v1/threads/wide/events", func(data []byte) bool {
					now := time.Now().UnixNano()
					var ev struct {
						Kind  string
						Value int64
					}
					if json.Unmarshal(data, &ev) != nil || ev.Kind != "signal" {
						return true
					}
					if first {
						first = false
						ready.Done()
						return true
					}
					own = append(own, time.Duration(now-ev.Value))
					return len(own) < events
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, "reader:", err)
				}
				mu.Lock()
				delays.latencies = append(delays.latencies, own...)
				mu.Unlock()
			})
		}
		tell := func() error {
			return rt.Signal(ctx, "wide", "tick", time.Now().UnixNano(), perdure.SignalOptions{})
		}
		if err := tell(); err != nil { // everyone who gets it is there
			return err
		}
		ready.Wait()
		for range events {
			begin := time.Now()
			if err := tell(); err != nil {
				return err
			}
			appends.latencies = append(appends.latencies, time.Since(begin))
			time.Sleep(50 * time.Millisecond)
		}
		over.Wait()
		if n := len(delays.latencies); n != readers*events {
			return fmt.Errorf("%d of %d events were read", n, readers*events)
		}
		fmt.Printf("from the call that appends to each of %d readers: p50 %s, p99 %s; the append alone: p50 %s, p99 %s\n", readers,
			short(delays.p(50)), short(delays.p(99)), short(appends.p(50)), short(appends.p(99)))
		return nil
	})
}

// overhead measures what the API adds to a start and to an answer.
func overhead(ctx context.Context, dir string) error {
	asker := perdure.NewFlow("asker", func(ctx context.Context, _ int) (bool, error) {
		return perdure.Ask[bool](ctx, "ok", perdure.Question{})
	})
	return inRuntime(ctx, dir, func(_ store.Store, rt *perdure.Runtime) error {
		web := serve(rt)
		defer web.Close()
		c, err := client.New(web.URL, client.Options{})
		if err != nil {
			return err
		}
		callers := []interface {
			Start(context.Context, perdure.StartRequest) (*perdure.Run, error)
			Answer(context.Context, ...perdure.AskAnswer) error
		}{rt, c}
		var starts, answers [2][]time.Duration // by the library, and over HTTP
		for i := range 400 {
			how := i % 2
			begun := time.Now()
			run, err := callers[how].Start(ctx, perdure.StartRequest{Flow: "asker", Input: i})
			if err != nil {
				return err
			}
			starts[how] = append(starts[how], time.Since(begun))
			if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil {
				return err
			}
			if len(run.Asks) != 1 {
				return fmt.Errorf("run %s is %s", run.ID, run.Status)
			}
			begun = time.Now()
			if err := callers[how].Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}}); err != nil {
				return err
			}
			answers[how] = append(answers[how], time.Since(begun))
		}
		printOverhead("start", starts)
		printOverhead("answer", answers)
		return nil
	}, asker)
}

func printOverhead(what string, took [2][]time.Duration) {
	lib, web := median(took[0]), median(took[1])
	fmt.Printf("  %-7s %6d µs by the library, %6d µs over HTTP (ratio %.1f)\n", what, lib.Microseconds(), web.Microseconds(), float64(web)/float64(lib))
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
