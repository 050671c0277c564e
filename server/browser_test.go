//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// browserPatience is how long a page may take to show what a test waits for. It is
// generous: it only bounds tests that fail.
const browserPatience = 2 * time.Minute

// browserPage is a page in a browser of its own, which ends with the test. It speaks
// Chromium's own debugging protocol over pipes, which Unix can hand to a process.
type browserPage struct {
	t       testing.TB
	to      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan browserMessage
	said    []string // by the page's console and its uncaught errors
	ended   error
}

// browserMessage is a request to the browser, its answer, or an event.
type browserMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// browserPath finds the browser.
func browserPath() (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	for _, name := range names {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("none of %s is installed", strings.Join(names, ", "))
}

// openBrowser starts a browser and opens url in it. Without a browser the test is
// skipped, and fails in CI. The page reaches this machine only.
func openBrowser(t testing.TB, url string) *browserPage {
	t.Helper()
	program, err := browserPath()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("a browser is needed: %v", err)
	}
	if err != nil {
		t.Skipf("skipped, because a browser is needed: %v", err)
	}
	profile, err := os.MkdirTemp("", "perdure-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	in, to, err1 := os.Pipe()
	from, out, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--window-size=1600,1200",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // as descriptors 3 and 4
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	p := &browserPage{t: t, to: to, waiting: map[int]chan browserMessage{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(from)
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		to.Close()
		<-read
		from.Close()
		if t.Failed() {
			t.Logf("the page said: %s", strings.Join(p.said, "\n"))
		}
		for range 50 { // processes of the browser may still write for a moment
			if os.RemoveAll(profile) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	var target struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	p.call("Runtime.enable", nil, nil)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// read passes on what the browser says until it is gone.
func (p *browserPage) read(from *os.File) {
	lines := bufio.NewReader(from)
	for {
		raw, err := lines.ReadBytes(0)
		var m browserMessage
		if err == nil {
			err = json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &m)
		}
		p.mu.Lock()
		switch waits := p.waiting[m.ID]; {
		case err != nil:
			p.ended = errors.Join(errors.New("the browser has ended"), err)
			for _, w := range p.waiting {
				close(w)
			}
			p.mu.Unlock()
			return
		case waits != nil:
			delete(p.waiting, m.ID)
			waits <- m
		case m.Method == "Runtime.consoleAPICalled" || m.Method == "Runtime.exceptionThrown":
			said, _ := json.Marshal(m.Params)
			p.said = append(p.said, string(said[:min(len(said), 2000)]))
		}
		p.mu.Unlock()
	}
}

// ask calls a method of the protocol.
func (p *browserPage) ask(method string, params any) (json.RawMessage, error) {
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return nil, p.ended
	}
	p.next++
	m := browserMessage{ID: p.next, SessionID: p.session, Method: method, Params: params}
	answer := make(chan browserMessage, 1)
	p.waiting[m.ID] = answer
	raw, err := json.Marshal(m)
	if err == nil {
		_, err = p.to.Write(append(raw, 0))
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, p.ended
		case m.Error != nil:
			return nil, errors.New(m.Error.Message)
		}
		return m.Result, nil
	case <-time.After(browserPatience):
		return nil, errors.New("the browser does not answer")
	}
}

func (p *browserPage) call(method string, params, out any) {
	p.t.Helper()
	raw, err := p.ask(method, params)
	if err == nil && out != nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// Eval evaluates an expression in the page, or awaits the promise that it is,
// and decodes its value into out unless that is nil.
func (p *browserPage) Eval(js string, out any) {
	p.t.Helper()
	if err := p.eval(js, out); err != nil {
		p.t.Fatalf("%v in %s", err, js)
	}
}

func (p *browserPage) eval(js string, out any) error {
	raw, err := p.ask("Runtime.evaluate", map[string]any{"expression": js, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err != nil {
		return err
	}
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return err
	}
	if e := got.ExceptionDetails; e != nil {
		return errors.New(e.Text + " " + e.Exception.Description)
	}
	if out == nil {
		return nil
	}
	if got.Result.Value == nil {
		got.Result.Value = json.RawMessage("null")
	}
	return json.Unmarshal(got.Result.Value, out)
}

// Until waits until an expression is true. An error in it, such as for an
// element that is not there yet, is as good as false.
func (p *browserPage) Until(js string) {
	p.t.Helper()
	by := time.Now().Add(browserPatience)
	for {
		var yes bool
		err := p.eval("!!("+js+")", &yes)
		if err == nil && yes {
			return
		}
		if time.Now().After(by) {
			var text string
			_ = p.eval("document.body.innerText", &text)
			p.t.Fatalf("the page does not come to %s (%v); it shows\n%s", js, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Reload loads the page anew.
func (p *browserPage) Reload() {
	p.t.Helper()
	p.Eval("window.old = true", nil)
	p.call("Page.reload", nil, nil)
	p.Until("!window.old")
}
