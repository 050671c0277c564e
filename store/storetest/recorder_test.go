package storetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// record runs fn as a test of its own and returns whether it failed and what
// it said. The test that calls it does not fail with it.
func record(t testing.TB, fn func(tb testing.TB)) (failed bool, log string) {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		fn(r)
	}()
	<-done
	if panicked != nil {
		t.Fatalf("the recorded test panicked: %v\n%s", panicked, r.log.String())
	}
	return r.failed, r.log.String()
}

// recorder is a testing.TB that keeps failures to itself. What it does not
// override, such as TempDir and Cleanup, is done by the test around it.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	log    strings.Builder
}

func (r *recorder) say(fail bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || fail
	r.log.WriteString(strings.TrimSuffix(text, "\n") + "\n")
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.say(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.say(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.say(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.say(true, "Fail") }

func (r *recorder) FailNow() {
	r.say(true, "FailNow")
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.Log(args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	runtime.Goexit()
}

func (r *recorder) SkipNow() { runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func TestRecorder(t *testing.T) {
	went := false
	failed, log := record(t, func(tb testing.TB) {
		tb.Logf("a %d", 1)
		tb.Errorf("b %d", 2)
		if !tb.Failed() {
			t.Error("Failed is false after Errorf")
		}
		tb.Fatal("c", 3)
		went = true
	})
	if !failed || log != "a 1\nb 2\nc 3\n" || went {
		t.Errorf("record = %v, %q, went on after Fatal: %v", failed, log, went)
	}
	if failed, log := record(t, func(tb testing.TB) { tb.Log("fine") }); failed || log != "fine\n" {
		t.Errorf("record of a test that passes = %v, %q", failed, log)
	}
}
