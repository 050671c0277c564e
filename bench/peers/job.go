package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// job is what one process does, with one peer in one folder.
type job struct {
	Do      string `json:"do"` // runs, suspend or wake
	Dir     string `json:"dir"`
	Result  string `json:"result"`  // of a step
	Warm    int    `json:"warm"`    // steps of a run before the measured ones
	Runs    int    `json:"runs"`    // at most so many
	Steps   int    `json:"steps"`   // of each run
	Clients int    `json:"clients"` // runs at a time
	Millis  int64  `json:"millis"`  // no run is started later
}

// measured is what the process prints as its last line.
type measured struct {
	Runs    int     `json:"runs"`
	Seconds float64 `json:"seconds"` // from the first start to the last result; of wake, from opening to the step
	Steps   int64   `json:"steps"`
	Span    float64 `json:"span"`  // seconds from the first step to the last
	Bytes   int64   `json:"bytes"` // passed to write calls
	Setting string  `json:"setting"`
}

// ticks are the steps done, and when the first and the last of them were.
var ticks struct {
	n           atomic.Int64
	first, last atomic.Int64
}

var epoch = time.Now()

// tick counts a step that begins.
func tick() {
	now := int64(time.Since(epoch))
	if ticks.n.Add(1) == 1 {
		ticks.first.Store(now)
	}
	ticks.last.Store(now)
}

// fatal ends the process if something that runs in the background has failed.
func fatal(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// work does a job in this process, with the peer that open opens.
func (j job) work(ctx context.Context, open func(context.Context, string) (peer, error)) (m measured, err error) {
	began := time.Now()
	p, err := open(ctx, j.Dir)
	if err != nil {
		return m, err
	}
	switch j.Do {
	case "suspend":
		return m, p.suspend(ctx, "long", j.Steps)
	case "wake":
		err = p.wake(ctx, "long")
		m.Seconds, m.Steps = (time.Duration(ticks.last.Load()) - began.Sub(epoch)).Seconds(), ticks.n.Load()
		return m, err
	}
	if j.Warm > 0 {
		if err := p.run(ctx, "warm", j.Warm); err != nil {
			return m, err
		}
	}
	ticks.n.Store(0)
	before := bytesWritten()
	began = time.Now()
	var next, done atomic.Int64
	errs := make([]error, j.Clients)
	var wg sync.WaitGroup
	for c := range j.Clients {
		wg.Go(func() {
			for time.Since(began).Milliseconds() < j.Millis {
				n := next.Add(1)
				if n > int64(j.Runs) {
					return
				}
				if errs[c] = p.run(ctx, fmt.Sprint("run-", n), j.Steps); errs[c] != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	m = measured{Runs: int(done.Load()), Seconds: time.Since(began).Seconds(), Bytes: bytesWritten() - before,
		Steps: ticks.n.Load(), Span: time.Duration(ticks.last.Load() - ticks.first.Load()).Seconds()}
	if err := errors.Join(errs...); err != nil {
		return m, err
	}
	m.Setting, err = p.setting(ctx)
	return m, err
}

// bytesWritten is what this process has passed to write calls, where the system
// counts it.
func bytesWritten() int64 {
	data, _ := os.ReadFile("/proc/self/io")
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("wchar:")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
			return n
		}
	}
	return 0
}

// process does a job in a new process, below other programs if there are any.
func (e entrant) process(ctx context.Context, j job, below ...string) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	j.Result = result
	text, err := json.Marshal(j)
	if err != nil {
		return m, err
	}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	args := []string{self, "-as", e.name}
	if e.command != nil {
		if args, _, err = e.command(); err != nil {
			return m, err
		}
	}
	args = append(append(below, args...), string(text))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return m, fmt.Errorf("%w: %s", err, lastLine(problems.String()))
	}
	if err := json.Unmarshal([]byte(lastLine(out.String())), &m); err != nil {
		return m, fmt.Errorf("what it printed: %w", err)
	}
	return m, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// calls finds the numbers of calls in what strace -c prints.
var calls = regexp.MustCompile(`(?m)^ *[\d.]+ +[\d.]+ +\d+ +(\d+) .*(fsync|fdatasync|sync_file_range|msync)$`)

// syncs counts the syncs of a step: the difference of two runs of different lengths.
func (e entrant) syncs(ctx context.Context, dir string) (float64, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return 0, err
	}
	const short, long = 50, 150
	var counts [2]int
	for i, steps := range []int{short, long} {
		folder, err := os.MkdirTemp(dir, e.name+"-")
		if err != nil {
			return 0, err
		}
		file := filepath.Join(folder, "strace")
		_, err = e.process(ctx, job{Do: "runs", Dir: folder, Runs: 1, Steps: steps, Clients: 1, Millis: 60_000},
			"strace", "-f", "-c", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", file)
		if err != nil {
			return 0, err
		}
		table, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for _, m := range calls.FindAllSubmatch(table, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			counts[i] += n
		}
		if err := os.RemoveAll(folder); err != nil {
			return 0, err
		}
	}
	return float64(counts[1]-counts[0]) / (long - short), nil
}
