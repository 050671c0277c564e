package llmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
)

// Player is an http.RoundTripper that answers from a recording.
type Player struct {
	file    string
	secrets *secrets
	failed  func(error) // called for what is not in the recording; may be nil

	mu     sync.Mutex
	tape   tape
	played []bool
}

var _ http.RoundTripper = (*Player)(nil)

// Load reads a recording. Most tests use [Client]. The secrets are those of the
// recording, if its bodies hold any.
func Load(file string, o Options) (*Player, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &Player{file: file, secrets: newSecrets(o.Secrets)}
	if err := json.Unmarshal(data, &p.tape); err != nil {
		return nil, fmt.Errorf("llmtest: %s is not a recording: %w", file, err)
	}
	p.played = make([]bool, len(p.tape.Exchanges))
	return p, nil
}

// RoundTrip answers with the first exchange of the same request that has not been
// played.
func (p *Player) RoundTrip(r *http.Request) (*http.Response, error) {
	p.secrets.learn(r.Header, r.URL.Query())
	form, _, err := newRequest(r, p.secrets)
	if err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp, err := p.find(form)
	if err != nil {
		if p.failed != nil {
			p.failed(err)
		}
		return nil, err
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", resp.Status, http.StatusText(resp.Status)),
		StatusCode: resp.Status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        resp.Header.Clone(),
		ContentLength: -1,
		Body:          &playedBody{ctx: r.Context(), chunks: slices.Clone(resp.Chunks), cut: resp.Cut},
		Request:       r,
	}, nil
}

func (r request) String() string {
	s := r.Method + " " + r.Path
	if r.Query != "" {
		s += "?" + r.Query
	}
	return s
}

func (p *Player) find(r request) (*response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := 0
	for i := range p.tape.Exchanges {
		e := &p.tape.Exchanges[i]
		if q := e.Request; q.Method != r.Method || q.Path != r.Path || q.Query != r.Query || q.Body.key() != r.Body.key() {
			continue
		}
		if !p.played[i] {
			p.played[i] = true
			return &e.Response, nil
		}
		again++
	}
	const how = "If it is right, record again with " + Env + "=record"
	if again > 0 {
		return nil, fmt.Errorf("llmtest: %s: the request %s was recorded %d times and is made once more. %s", p.file, r, again, how)
	}
	return nil, fmt.Errorf("llmtest: %s: the request %s is not there. %s\n%s", p.file, r, how, p.nearest(r))
}

// nearest describes how a request differs from the most similar recorded one.
func (p *Player) nearest(r request) string {
	lines := func(r request) []string { return append([]string{r.String()}, r.Body.lines()...) }
	best, text := -1, ""
	for i, e := range p.tape.Exchanges {
		diff := cmp.Diff(lines(e.Request), lines(r))
		if best < 0 || len(diff) < len(text) {
			best, text = i, diff
		}
	}
	if best < 0 {
		return "The recording is empty."
	}
	state := ""
	if p.played[best] {
		state = ", which was played already"
	}
	return fmt.Sprintf("It differs from the nearest, number %d%s (- recorded, + now):\n%s", best+1, state, strings.TrimSpace(text))
}

// playedBody reads the pieces as they came.
type playedBody struct {
	ctx    context.Context
	chunks []piece
	cut    bool
}

// Read returns at most one piece.
func (b *playedBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.chunks) == 0 {
		if b.cut {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, io.EOF
	}
	n := copy(p, b.chunks[0])
	if b.chunks[0] = b.chunks[0][n:]; len(b.chunks[0]) == 0 {
		b.chunks = b.chunks[1:]
	}
	return n, nil
}

// Close does nothing: there is no connection.
func (b *playedBody) Close() error { return nil }
