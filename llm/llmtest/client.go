package llmtest

import (
	"net/http"
	"os"
	"testing"
)

// Env is the environment variable that says what [Client] does: record, or replay, which
// is the default.
const Env = "PERDURE_LLMTEST"

// Options of a recording.
type Options struct {
	Secrets   []string          // texts that must not be written; secrets in headers are found anyway
	Transport http.RoundTripper // to the service, http.DefaultTransport if nil
}

// Client returns a client that answers from a file, or records it: see [Env].
// A request that is not in the file fails the test.
func Client(t testing.TB, file string, o Options) *http.Client {
	t.Helper()
	switch mode := os.Getenv(Env); mode {
	case "record":
		rec := NewRecorder(o)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("llmtest: %s is not written, because the test failed", file)
				return
			}
			if err := rec.Save(file); err != nil {
				t.Error(err)
			}
		})
		return &http.Client{Transport: rec}
	case "", "replay":
		play, err := Load(file, o)
		if os.IsNotExist(err) {
			t.Fatalf("llmtest: there is no %s; record it with %s=record and a key", file, Env)
		}
		if err != nil {
			t.Fatal(err)
		}
		play.failed = func(err error) { t.Error(err) }
		return &http.Client{Transport: play}
	default:
		t.Fatalf("llmtest: %s=%s; it is record or replay", Env, mode)
		return nil
	}
}
