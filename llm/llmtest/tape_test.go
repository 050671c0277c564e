package llmtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stream answers with pieces that are flushed one by one.
func stream(t *testing.T, pieces ...string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func post(c *http.Client, url, body string, header ...string) (string, *http.Response, error) {
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), resp, err
}

func TestWhatIsRecordedIsPlayedBackWithoutAServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "below", "tape.json")
	server := stream(t, "data: one\n\n", "data: zw\xc3", "\xb6lf\n\n")
	rec := NewRecorder(Options{})
	got, _, err := post(&http.Client{Transport: rec}, server.URL+"/v1/chat?alt=sse", `{"b": 1, "a": "<x>"}`)
	if err != nil || got != "data: one\n\ndata: zwölf\n\n" {
		t.Fatal(got, err)
	}
	if err := rec.Save(file); err != nil {
		t.Fatal(err)
	}
	server.Close()

	t.Setenv(Env, "")
	c := Client(t, file, Options{})
	got, resp, err := post(c, "https://elsewhere.invalid/v1/chat?alt=sse", `{"a":"<x>","b":1}`)
	if err != nil || got != "data: one\n\ndata: zwölf\n\n" || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(got, resp, err)
	}
}

func TestClientRecordsWhatATestAsksAndReplaysIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tape.json")
	server := stream(t, "hello")
	t.Setenv(Env, "record")
	t.Run("record", func(t *testing.T) {
		if _, _, err := post(Client(t, file, Options{}), server.URL, `{}`); err != nil {
			t.Error(err)
		}
	})
	server.Close()
	t.Setenv(Env, "replay")
	if got, _, err := post(Client(t, file, Options{}), server.URL, `{}`); err != nil || got != "hello" {
		t.Error(got, err)
	}
}

func TestPiecesComeBackAsTheyCame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunks := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 1, 8)).Draw(t, "chunks")
		rec := NewRecorder(Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			b := &playedBody{ctx: context.Background()}
			for _, c := range chunks {
				b.chunks = append(b.chunks, c)
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: b}, nil
		})})
		if _, _, err := post(&http.Client{Transport: rec}, "http://x.invalid/", "no json"); err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "llmtest")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "tape.json")
		if err := rec.Save(file); err != nil {
			t.Fatal(err)
		}
		play, err := Load(file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := http.NewRequest("POST", "http://y.invalid/", strings.NewReader("no json"))
		resp, err := play.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]byte
		buf := make([]byte, 100)
		for range len(chunks) + 1 {
			n, err := resp.Body.Read(buf)
			if n > 0 {
				got = append(got, bytes.Clone(buf[:n]))
			}
			if err != nil {
				break
			}
		}
		if !cmp.Equal(chunks, got) && len(chunks)+len(got) > 0 {
			t.Fatal(cmp.Diff(chunks, got))
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNoSecretIsInTheFile(t *testing.T) {
	names := []string{"auth", "xapi", "goog", "query", "cookie", "org", "given", "set", "sl/a+sh\"<&"}
	canary := map[string]string{}
	for _, n := range names {
		canary[n] = "CANARY-" + n + "-0123456789"
	}
	openaiKey, openaiOrg := "sk-proj-CANARYabcdefghijklmnop", "org-CANARYabcdef1234567890"
	all := ""
	for _, c := range canary {
		all += c + " " + url.QueryEscape(c) + " "
	}
	half := canary["auth"]
	service := roundTrip(func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		h.Set("Set-Cookie", "session="+canary["set"]+"; Path=/")
		h.Set("Openai-Organization", canary["org"])
		h.Set("X-Ratelimit-Reset-Requests", "1s")
		h.Set("Retry-After", "7")
		b := &playedBody{ctx: r.Context()}
		for _, s := range []string{
			"before " + all, half[:9], half[9:15], half[15:] + " after ", "Path=/ and Bearer stay ",
			base64.StdEncoding.EncodeToString([]byte(canary["given"])), " Incorrect key " + openaiKey + " of " + openaiOrg[:7], openaiOrg[7:] + " end",
		} {
			b.chunks = append(b.chunks, piece(s))
		}
		return &http.Response{StatusCode: 200, Header: h, Body: b}, nil
	})
	rec := NewRecorder(Options{Transport: service, Secrets: []string{canary["given"], canary["sl/a+sh\"<&"]}})
	body, _ := plainJSON(map[string]string{"prompt": all + openaiKey}, "")
	got, _, err := post(&http.Client{Transport: rec}, "http://x.invalid/v1/"+canary["xapi"]+"?alt=sse&key="+url.QueryEscape(canary["query"]), string(body),
		"Authorization", "Bearer "+canary["auth"], "X-Api-Key", canary["xapi"], "X-Goog-Api-Key", canary["goog"],
		"Cookie", "a="+canary["cookie"]+"; b=2", "Openai-Organization", canary["org"])
	if err != nil || !strings.Contains(got, half) {
		t.Fatalf("what is passed on is not what came: %q, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "tape.json")
	if err := rec.Save(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	play, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var joined strings.Builder
	for _, c := range play.tape.Exchanges[0].Response.Chunks {
		joined.Write(c)
	}
	for _, text := range []string{string(data), joined.String()} {
		if strings.Contains(text, "CANARY") || strings.Contains(text, base64.RawStdEncoding.EncodeToString([]byte(canary["given"]))) {
			t.Errorf("a secret is written:\n%s", text)
		}
	}
	for _, want := range []string{"before", "after", "Incorrect key", "Path=/ and Bearer stay", "end", "alt=sse", `"7"`, "[secret]"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not written:\n%s", want, data)
		}
	}
	if n := len(play.tape.Exchanges[0].Response.Chunks); n < 5 {
		t.Errorf("only %d pieces are left", n)
	}
}

func TestASecretIsFoundHoweverABodyIsCut(t *testing.T) {
	const secret = "s3cr3t-value"
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{secret, "a", "s3cr3t", "-value", "é"})).Draw(t, "text"), "")
		var cuts []int
		for at := 0; at < len(text); {
			at = min(len(text), at+rapid.IntRange(1, 9).Draw(t, "n"))
			cuts = append(cuts, at)
		}
		clean, moved := newSecrets([]string{secret}).cleanCut(text, cuts)
		if want := strings.ReplaceAll(text, secret, hidden); clean != want {
			t.Fatalf("%q, want %q", clean, want)
		}
		if len(moved) != len(cuts) || len(cuts) > 0 && moved[len(moved)-1] != len(clean) {
			t.Fatalf("the cuts %v become %v", cuts, moved)
		}
		for i := 1; i < len(moved); i++ {
			if moved[i] < moved[i-1] {
				t.Fatalf("the cuts %v are out of order", moved)
			}
		}
	})
}

func TestARequestThatIsNotRecordedIsAnErrorWithADifference(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tape.json")
	tape := `{"exchanges": [
		{"request": {"method": "POST", "path": "/v1", "body": {"model": "other", "messages": [1, 2, 3]}}, "response": {"status": 200, "chunks": ["x"]}},
		{"request": {"method": "POST", "path": "/v1", "body": {"model": "m", "text": "hello"}}, "response": {"status": 200, "chunks": ["x"]}}]}`
	if err := os.WriteFile(file, []byte(tape), 0o666); err != nil {
		t.Fatal(err)
	}
	play, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var told error
	play.failed = func(err error) { told = err }
	c := &http.Client{Transport: play}
	_, _, err = post(c, "http://x.invalid/v1", `{"model": "m", "text": "good bye"}`)
	if err == nil || told == nil {
		t.Fatal(err, told)
	}
	text := strings.ReplaceAll(told.Error(), "\u00a0", " ")
	for _, want := range []string{"the request POST /v1 is not there", Env + "=record", "number 2", "hello", "good bye"} {
		if !strings.Contains(text, want) {
			t.Errorf("the error does not say %q:\n%s", want, text)
		}
	}
	for i := range 2 {
		_, _, err = post(c, "http://x.invalid/v1", `{"model": "m", "text": "hello"}`)
		if (err != nil) != (i > 0) {
			t.Errorf("time %d: %v", i, err)
		}
	}
	if !strings.Contains(fmt.Sprint(err), "was recorded 1 times and is made once more") {
		t.Error(err)
	}
}

func TestAReplyThatWasBrokenOffEndsSoAgain(t *testing.T) {
	rec := NewRecorder(Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &playedBody{ctx: context.Background(), chunks: []piece{piece("half")}, cut: true}}, nil
	})})
	file := filepath.Join(t.TempDir(), "tape.json")
	_, _, first := post(&http.Client{Transport: rec}, "http://x.invalid/", "")
	if err := rec.Save(file); err != nil {
		t.Fatal(err)
	}
	got, _, second := post(Client(t, file, Options{}), "http://x.invalid/", "")
	if !errors.Is(first, io.ErrUnexpectedEOF) || !errors.Is(second, io.ErrUnexpectedEOF) || got != "half" {
		t.Error(first, second, got)
	}
}

func TestReplayEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &playedBody{ctx: ctx, chunks: []piece{piece("a"), piece("b")}}
	buf := make([]byte, 10)
	if n, err := b.Read(buf); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	cancel()
	if n, err := b.Read(buf); n != 0 || !errors.Is(err, context.Canceled) {
		t.Error(n, err)
	}
}
