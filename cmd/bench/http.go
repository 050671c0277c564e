package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
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

// serving serves a runtime's API, and returns its address and what stops it.
func serving(rt *perdure.Runtime) (string, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	h := server.New(rt, server.Options{}).HTTPServer()
	go func() { _ = h.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _ = h.Close() }, nil
}

// streamOf opens the stream of a thread, which calls fn with the data of each
// event until that returns false.
func streamOf(ctx context.Context, url string, fn func(data []byte) bool) error {
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

// longThread puts a thread with so many events into a store. It is made in
// memory, since a disk is no part of what is measured.
func longThread(ctx context.Context, s store.Store, events int) error {
	mem := memstore.New()
	defer mem.Close()
	many := perdure.NewFlow("many", func(ctx context.Context, n int) (int, error) {
		return n, doSteps(ctx, n, 200)
	})
	rt, stop, err := working(ctx, mem, many)
	if err != nil {
		return err
	}
	defer stop()
	for last := uint64(0); last < uint64(events); {
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "long", Flow: "many", Input: min(2000, events-int(last))}); err != nil {
			return err
		}
		if err := succeed(ctx, rt, "long"); err != nil {
			return err
		}
		t, err := rt.Get(ctx, "long")
		if err != nil {
			return err
		}
		last = t.Seq
	}
	var file bytes.Buffer
	if err := rt.Export(ctx, "long", &file, perdure.ExportOptions{}); err != nil {
		return err
	}
	target, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, many)
	if err == nil {
		_, err = target.Import(ctx, &file, perdure.ImportOptions{})
	}
	return err
}

// replayStream measures how fast a stream delivers a past of so many events.
func replayStream(ctx context.Context, dir string, events int) error {
	return inStore(ctx, dir, func(s store.Store) error {
		if err := longThread(ctx, s, events); err != nil {
			return err
		}
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"})
		if err != nil {
			return err
		}
		url, stop, err := serving(rt)
		if err != nil {
			return err
		}
		defer stop()
		var rates, plain, allocs []float64
		for range 3 {
			var before, after runtime.MemStats
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
			runtime.ReadMemStats(&before)
			begin, n = time.Now(), 0
			err := streamOf(ctx, url+"/v1/threads/long/events", func([]byte) bool { n++; return n < events })
			if err != nil {
				return err
			}
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			rates = append(rates, float64(n)/took.Seconds())
			allocs = append(allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
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
	return inStore(ctx, dir, func(s store.Store) error {
		rt, stop, err := working(ctx, s)
		if err != nil {
			return err
		}
		defer stop()
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: "wide", Flow: "steps", Input: 1}); err != nil {
			return err
		}
		url, down, err := serving(rt)
		if err != nil {
			return err
		}
		defer down()
		var mu sync.Mutex
		var delays, appends series
		var ready, over sync.WaitGroup
		for range readers {
			ready.Add(1)
			over.Go(func() {
				var own []time.Duration
				first := true
				err := streamOf(ctx, url+"/v1/threads/wide/events", func(data []byte) bool {
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
