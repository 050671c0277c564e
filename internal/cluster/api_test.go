//go:build unix

package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// addresses are those at which API nodes are, or were a moment ago: as a load
// balancer knows them.
type addresses struct {
	mu    sync.Mutex
	slots []string
}

func (a *addresses) set(slot int, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots[slot] = address
}

func (a *addresses) any() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slots[rand.IntN(len(a.slots))]
}

func (a *addresses) each() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.slots...)
}

// calls is an HTTP client that notices when a node is frozen.
var calls = &http.Client{Timeout: 10 * time.Second}

// call sends one request to one node, and returns the status and the body.
func call(ctx context.Context, method, url, key string, body any) (int, []byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := calls.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// insist repeats a request to any node until one answers that it is done, or that it
// cannot be.
func (a *addresses) insist(ctx context.Context, method, path, key string, body, into any) error {
	for {
		status, data, err := call(ctx, method, a.any()+path, key, body)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || status >= 500 || status == http.StatusTooManyRequests:
		case status >= 300:
			return &refusal{method + " " + path, status, string(data)}
		case into == nil:
			return nil
		default:
			return json.Unmarshal(data, into)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
		}
	}
}

// refusal is an answer that repeating the request does not change.
type refusal struct {
	request string
	status  int
	body    string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %d %s", r.request, r.status, r.body) }

// seen is an event as a stream told it.
type seen struct {
	Seq  int64  `json:"seq"`
	Kind string `json:"kind"`
	Path string `json:"path"`
	Time string `json:"time"`
}

// reader follows a thread over all nodes, and leaves them now and then.
type reader struct {
	thread   string
	events   []seen
	connects int
	err      error
}

// follow reads until the run has ended.
func (r *reader) follow(ctx context.Context, a *addresses) {
	for r.err == nil && ctx.Err() == nil {
		ended, err := r.connect(ctx, a.any())
		if ended {
			return
		}
		r.err = err
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(100 * time.Millisecond)):
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("it has not seen the end after %d events", len(r.events))
	}
}

// streams has no limit for a whole answer.
var streams = &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 10 * time.Second}}

// connect reads one stream. Its error is what no reader should see.
func (r *reader) connect(ctx context.Context, address string) (ended bool, err error) {
	ctx, leave := context.WithTimeout(ctx, 500*time.Millisecond+rand.N(4*time.Second))
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/v1/threads/"+r.thread+"/events", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	last := int64(0)
	if len(r.events) > 0 {
		last = r.events[len(r.events)-1].Seq
		req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	resp, err := streams.Do(req)
	if err != nil {
		return false, nil // the node is not there
	}
	defer resp.Body.Close()
	r.connects++
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusNotFound && last == 0 {
			return false, nil // later
		}
		return false, fmt.Errorf("the stream after %d: %s %s", last, resp.Status, data)
	}
	lines := bufio.NewReader(resp.Body)
	id, kind, data := "", "", ""
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			return false, nil // cut off: what is not whole does not count
		}
		if strings.HasPrefix(text, ":") {
			continue
		}
		switch name, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ":"); name {
		case "id":
			id = strings.TrimPrefix(rest, " ")
		case "event":
			kind = strings.TrimPrefix(rest, " ")
		case "data":
			data += strings.TrimPrefix(rest, " ")
		case "":
			if data != "" && id != "" {
				var e seen
				if err := json.Unmarshal([]byte(data), &e); err != nil || strconv.FormatInt(e.Seq, 10) != id || e.Kind != kind {
					return false, fmt.Errorf("the event %s (%s) is %s: %v", id, kind, data, err)
				}
				r.events = append(r.events, e)
				if e.Kind == "ended" {
					return true, nil
				}
			}
			id, kind, data = "", "", ""
		}
	}
}
