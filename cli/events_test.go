package cli

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/server"
)

// listening serves the API of a runtime at an address until it is stopped.
func listening(t *testing.T, rt *perdure.Runtime, address string) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	api := server.New(rt, server.Options{})
	srv := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	go srv.Serve(l)
	return l.Addr().String(), func() {
		srv.Close() // all connections are cut
		api.Close()
	}
}

func TestEventsAreFollowedOverRestartsOfTheServer(t *testing.T) {
	p := served(t)
	address, stop := listening(t, p.rt, "127.0.0.1:0")
	ask := p.asked("t", "order", "tea")
	p.run("", "run", "order", "milk", "--thread", "t", "--detach").want(exit.OK)

	var out listener
	p.flags = nil
	p.setUp = func(a *app) { a.term.Out = &out }
	ended := make(chan *result, 1)
	out.on("suspended", func() {
		stop()
		_, stop = listening(t, p.rt, address)
		if err := p.rt.Answer(t.Context(), perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: true}}); err != nil {
			t.Error(err)
		}
	})
	thread, err := p.rt.Get(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- p.run("", "events", "t", "-f", "--run", thread.Runs[0].ID, "--server", "http://"+address)
	}()
	select {
	case r := <-ended:
		r.want(exit.OK)
	case <-time.After(time.Minute):
		t.Fatalf("it does not end; it has printed\n%s", out.String())
	}
	stop()
	var want []string
	for e, err := range p.rt.Events(t.Context(), "t", perdure.EventOptions{Run: thread.Runs[0].ID, Replay: true}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint(e.Seq, " ", e.Kind))
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		got = append(got, words[0]+" "+words[2])
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// listener is an output that does something when it is told a word for the first
// time.
type listener struct {
	buffer
	word string
	do   func()
}

func (l *listener) on(word string, do func()) { l.word, l.do = word, do }

// Write takes what is printed.
func (l *listener) Write(p []byte) (int, error) {
	n, err := l.buffer.Write(p)
	if l.do != nil && strings.Contains(string(p), l.word) {
		do := l.do
		l.do = nil
		do()
	}
	return n, err
}

func TestEventsAreChosen(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "one", "--thread", "t").want(exit.OK)
		p.run("", "run", "echo", "two", "--thread", "t").want(exit.OK)
		all := p.run("", "events", "t").want(exit.OK, "one", "two").out
		later := p.run("", "events", "t", "--after", "1").want(exit.OK).out
		if !strings.HasSuffix(all, later) || strings.Count(all, "\n") != strings.Count(later, "\n")+1 {
			t.Errorf("after 1 there is\n%s\nof\n%s", later, all)
		}
		if one := p.run("", "events", "t", "--after", "1", "--limit", "1").want(exit.OK).out; one == "" || !strings.HasPrefix(later, one) || strings.Count(one, "\n") != 1 {
			t.Errorf("the first after 1 is\n%s\nof\n%s", one, later)
		}
		if one := p.run("", "events", "t", "-f", "--limit", "1").want(exit.OK).out; one == "" || !strings.HasPrefix(all, one) || strings.Count(one, "\n") != 1 {
			t.Errorf("followed, the first is\n%s\nof\n%s", one, all)
		}
		p.run("", "events", "t", "--after", "999").want(exit.BadUsage, "it ends at 9")
		p.run("", "events", "t", "--after", "x").want(exit.BadUsage, "--after")
		newest := p.run("", "events", "t", "--run", "newest").want(exit.OK, "two").out
		if strings.Contains(newest, "one") {
			t.Errorf("the newest run has\n%s", newest)
		}
		if followed := p.run("", "events", "t", "-f", "--run", "newest").want(exit.OK).out; followed != newest {
			t.Errorf("followed, the newest run has\n%s\nwant\n%s", followed, newest)
		}
		p.run("", "events", "t", "--run", "nope").want(exit.NotFound)
		p.run("", "events", "t", "-f", "--run", "nope").want(exit.NotFound)
	})
}
