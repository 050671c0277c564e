package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// The load: agents whose model says so many tokens a turn at this pace.
const (
	turnTokens = 200
	tokenPace  = 20 * time.Millisecond
	turnLength = turnTokens * tokenPace
	tokenTime  = 10 * time.Second // that is measured, after all agents have begun
)

var streams = flag.String("streams", "100,200,300,1000", "numbers of agents that stream at a time")

// tokens measures many agents whose model streams to readers: a fake model over
// HTTP, the API on sqlitestore in a process of its own, and readers over HTTP. A
// bare proxy carries the same tokens in the same run.
func tokens(ctx context.Context, dir string) error {
	model := &fakeModel{}
	if err := model.listen(); err != nil {
		return err
	}
	defer model.close()
	fmt.Printf("\nAgents on sqlitestore that stream %d tokens a turn at %d tokens/s each to a reader, beside a bare proxy (ours / proxy):\n\n", turnTokens, time.Second/tokenPace)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "agents\tCPU a token\tmodel to reader p50\tp99\tPOST to model p50\tMiB\tsyncs a turn\tlost\tdoubled\t")
	var counts []int
	var rows [][2]*tokenLoad
	for text := range strings.SplitSeq(*streams, ",") {
		agents, err := strconv.Atoi(text)
		if err != nil || agents < 1 {
			return fmt.Errorf("-streams: %q is no number of agents", text)
		}
		var row [2]*tokenLoad
		for i, kind := range []string{"proxy", "perdure"} {
			fmt.Fprintf(os.Stderr, "\r%d agents: %-10s", agents, kind)
			l, err := model.measure(ctx, dir, kind, agents)
			if err != nil {
				return fmt.Errorf("%s with %d agents: %w", kind, agents, err)
			}
			row[1-i] = l
		}
		counts, rows = append(counts, agents), append(rows, row)
		ours, bare := row[0], row[1]
		fmt.Fprintf(w, "%d\t%s / %s\t%s / %s\t%s / %s\t%s / %s\t%d / %d\t%.1f\t%d / %d\t%d / %d\t\n", agents,
			short(ours.cpu()), short(bare.cpu()), short(ours.delays.p(50)), short(bare.delays.p(50)), short(ours.delays.p(99)), short(bare.delays.p(99)),
			short(ours.posts.p(50)), short(bare.posts.p(50)), ours.used.Memory>>20, bare.used.Memory>>20,
			float64(ours.used.Syncs)/float64(max(1, len(ours.posts.latencies))), ours.lost, bare.lost, ours.doubled, bare.doubled)
	}
	fmt.Fprintf(os.Stderr, "\r%30s\r", "")
	w.Flush()
	fmt.Println("\nCPU: of the measured process, all its work included; p50 and p99: from the write of a token by the model to its read by the reader, as a delta or with the event of its step; MiB: the most resident memory.")
	for i, agents := range counts {
		ours, bare := rows[i][0], rows[i][1]
		atMost(fmt.Sprintf("%d agents: CPU a token ÷ the proxy's", agents), float64(ours.cpu())/float64(bare.cpu()), 3)
		atMost(fmt.Sprintf("%d agents: tokens lost or doubled", agents), float64(ours.lost+ours.doubled), 0)
		if agents == 300 {
			atMost("300 agents: model to reader p99 in ms", float64(ours.delays.p(99))/1e6, 30)
			atMost("300 agents: POST to model p50 in ms", float64(ours.posts.p(50))/1e6, 20)
		}
	}
	return nil
}

// tokenLoad is what agents, their model and their readers saw.
type tokenLoad struct {
	kind, url string
	client    *http.Client
	from, to  atomic.Int64 // when it counts, in ns

	mu            sync.Mutex
	delays, posts series
	lost, doubled int
	used          usage // while it counts; the memory is the most
}

func (l *tokenLoad) cpu() time.Duration {
	return l.used.CPU / time.Duration(max(1, len(l.delays.latencies)))
}

func (l *tokenLoad) counts(at int64) bool {
	from := l.from.Load()
	return from > 0 && at >= from && at < l.to.Load()
}

// measure puts a server on a new store under load, see newStore. The kind api has a
// worker beside it, in another process.
func (m *fakeModel) measure(ctx context.Context, where, kind string, agents int) (*tokenLoad, error) {
	store, remove, err := newStore(where)
	if err != nil {
		return nil, err
	}
	defer remove()
	if kind == "api" {
		_, stop, err := spawnTokenServer(ctx, "worker", m.url, store)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	url, stop, err := spawnTokenServer(ctx, kind, m.url, store)
	if err != nil {
		return nil, err
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := &http.Transport{MaxIdleConnsPerHost: agents, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l := &tokenLoad{kind: kind, url: url, client: &http.Client{Transport: transport}}
	if _, err := l.turn(ctx); err != nil { // a first one alone
		return nil, err
	}
	m.load.Store(l)
	errs := make([]error, agents)
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range agents {
		begin := time.Duration(rand.Int64N(int64(turnLength)))
		wg.Go(func() {
			time.Sleep(begin)
			for {
				_, err := l.turn(ctx)
				if ctx.Err() != nil {
					return
				}
				if errs[i] = err; err != nil {
					return
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	time.Sleep(turnLength + time.Second)
	before, err := l.usage()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	l.to.Store(now.Add(tokenTime).UnixNano())
	l.from.Store(now.UnixNano())
	time.Sleep(tokenTime)
	after, err := l.usage()
	if err != nil {
		return nil, err
	}
	close(over)
	time.AfterFunc(2*turnLength, cancel) // what takes longer is not waited for
	wg.Wait()
	l.used = usage{CPU: after.CPU - before.CPU, Memory: after.Memory, Syncs: after.Syncs - before.Syncs}
	if len(l.delays.latencies) == 0 || len(l.posts.latencies) == 0 {
		errs = append(errs, errors.New("nothing was read"))
	}
	return l, errors.Join(errs...)
}

// usage asks the server what it has used.
func (l *tokenLoad) usage() (u usage, err error) {
	resp, err := l.client.Get(l.url + "/bench/usage")
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	return u, json.NewDecoder(resp.Body).Decode(&u)
}

// The mark of a token is "#number:time#"; that of a turn is the time of its POST.
var turnMark = []byte("posted at ")

// turn lets an agent reply once, and reads the reply.
func (l *tokenLoad) turn(ctx context.Context) (read int, err error) {
	path, body := "/v1/runs", `{"flow":"talk","input":"%s%d"}`
	if l.kind == "proxy" {
		path, body = "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"%s%d"}]}`
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, strings.NewReader(fmt.Sprintf(body, turnMark, time.Now().UnixNano())))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	resp, err := l.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	var own []time.Duration
	defer func() { // also of a turn that is cut off
		l.mu.Lock()
		defer l.mu.Unlock()
		l.delays.latencies = append(l.delays.latencies, own...)
	}()
	event, next, lost, doubled, recorded := "", 0, 0, 0, 0
	lines := bufio.NewReaderSize(resp.Body, 16<<10)
	for {
		line, err := lines.ReadSlice('\n')
		now := time.Now().UnixNano()
		if err == io.EOF {
			break
		}
		if err != nil {
			return read, err
		}
		if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			event = string(bytes.TrimSpace(name))
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		for n, at := range marks(data) {
			switch {
			case event == "done":
				if n == recorded {
					recorded++
				}
				continue
			case event == "step" && n >= next: // it came before its delta, which is void then
			case event != "" && event != "delta":
				continue
			case n < next:
				doubled++
				continue
			}
			lost, next, read = lost+n-next, n+1, read+1
			if l.counts(now) {
				own = append(own, time.Duration(now-at))
			}
		}
	}
	if l.kind != "proxy" && recorded != turnTokens {
		return read, fmt.Errorf("the recorded reply has %d of %d tokens in order", recorded, turnTokens)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.doubled = l.lost+lost+turnTokens-next, l.doubled+doubled
	return read, nil
}

// marks yields the numbers and times of the tokens in a text.
func marks(data []byte) func(yield func(n int, at int64) bool) {
	return func(yield func(int, int64) bool) {
		for {
			_, rest, ok := bytes.Cut(data, []byte("#"))
			if !ok {
				return
			}
			mark, after, _ := bytes.Cut(rest, []byte("#"))
			number, at, _ := bytes.Cut(mark, []byte(":"))
			n, err1 := strconv.Atoi(string(number))
			ns, err2 := strconv.ParseInt(string(at), 10, 64)
			if err1 != nil || err2 != nil || !yield(n, ns) {
				return
			}
			data = after
		}
	}
}

// fakeModel speaks the protocol of OpenAI's models.
type fakeModel struct {
	url    string
	server *http.Server
	load   atomic.Pointer[tokenLoad]
}

func (m *fakeModel) listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.url = "http://" + l.Addr().String()
	m.server = &http.Server{Handler: m}
	go func() { _ = m.server.Serve(l) }() // until it is closed
	return nil
}

func (m *fakeModel) close() { _ = m.server.Close() }

// ServeHTTP says the tokens of a turn. The chunks have the members of OpenAI's.
func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	now := time.Now()
	_, rest, _ := bytes.Cut(body, turnMark)
	posted, err := strconv.ParseInt(string(rest[:max(0, bytes.IndexByte(rest, '"'))]), 10, 64)
	if l := m.load.Load(); l != nil && err == nil && l.counts(now.UnixNano()) {
		l.mu.Lock()
		l.posts.latencies = append(l.posts.latencies, time.Duration(now.UnixNano()-posted))
		l.mu.Unlock()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	const head = `data: {"id":"chatcmpl-BenchBenchBenchBenchBenchBe","object":"chat.completion.chunk","created":1760000000,"model":"gpt-5-2025-08-07","service_tier":"default","system_fingerprint":"fp_0123456789","choices":[`
	var line []byte
	say := func(choices, tail string) error {
		line = append(append(append(append(line[:0], head...), choices...), tail...), "}\n\n"...)
		if _, err := w.Write(line); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	}
	for n := range turnTokens {
		time.Sleep(time.Until(now.Add(time.Duration(n) * tokenPace)))
		choice := fmt.Sprintf(`{"index":0,"delta":{"content":"#%d:%d# "},"logprobs":null,"finish_reason":null}`, n, time.Now().UnixNano())
		if say(choice, `],"usage":null,"obfuscation":"nzt7jf"`) != nil {
			return
		}
	}
	_ = say(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`, `],"usage":null,"obfuscation":"n"`)
	_ = say("", `],"usage":{"prompt_tokens":9,"completion_tokens":200,"total_tokens":209,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"obfuscation":""`)
	_, _ = io.WriteString(w, "data: [DONE]\n\n") // the reader may be gone
}

// spawnTokenServer starts a measured process, and returns its address.
func spawnTokenServer(ctx context.Context, kind, model, store string) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-token-server", kind, model, store)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() } // its store is thrown away
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the %s says %q: %w", kind, line, err)
	}
	return strings.TrimSpace(line), stop, nil
}
