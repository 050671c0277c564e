package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/llm"
)

func TestErrorsMatchTheirKind(t *testing.T) {
	temporary := map[error]bool{
		llm.ErrRateLimited: true, llm.ErrOverloaded: true, llm.ErrInterrupted: true,
		llm.ErrTooLong: false, llm.ErrRefused: false, llm.ErrAuth: false, llm.ErrInvalid: false,
	}
	for kind, want := range temporary {
		err := fmt.Errorf("asking: %w", &llm.Error{Kind: kind, Provider: "p", Code: "c", Message: "m", RetryAfter: time.Second})
		for other := range temporary {
			if errors.Is(err, other) != (other == kind) {
				t.Errorf("%v matches %v", err, other)
			}
		}
		if llm.Temporary(err) != want || llm.Temporary(kind) != want {
			t.Errorf("%v is temporary: %v, want %v", err, llm.Temporary(err), want)
		}
		if got := llm.RetryAfter(err); got != time.Second {
			t.Errorf("retry after %v, want 1s", got)
		}
		if got, want := err.Error(), "asking: "+kind.Error()+": p: c: m"; got != want {
			t.Errorf("error says %q, want %q", got, want)
		}
	}
	if got := (&llm.Error{Kind: llm.ErrAuth}).Error(); got != llm.ErrAuth.Error() {
		t.Errorf("an error without words says %q", got)
	}
}

func TestOtherErrorsAreNotTemporary(t *testing.T) {
	for _, err := range []error{nil, context.Canceled, context.DeadlineExceeded, errors.New("llm: rate limited")} {
		if llm.Temporary(err) || llm.RetryAfter(err) != 0 {
			t.Errorf("%v is temporary, or to be retried after %v", err, llm.RetryAfter(err))
		}
	}
}

func TestScrubTakesSecretsOut(t *testing.T) {
	tests := []struct {
		text    string
		secrets []string
		want    string
	}{
		{"key sk-12345678, again sk-12345678", []string{"sk-12345678"}, "key [secret], again [secret]"},
		{"two: aaaaaaaa and bbbbbbbb", []string{"aaaaaaaa", "bbbbbbbb"}, "two: [secret] and [secret]"},
		{"short ones stay", []string{"short", "", "s"}, "short ones stay"},
		{"eight: 12345678", []string{"12345678"}, "eight: [secret]"},
		{"nothing", nil, "nothing"},
	}
	for _, tt := range tests {
		if got := llm.Scrub(tt.text, tt.secrets...); got != tt.want {
			t.Errorf("Scrub(%q, %q) is %q, want %q", tt.text, tt.secrets, got, tt.want)
		}
	}
}

// TestScrubTakesTheLongerSecretOut: one secret may begin like another.
func TestScrubTakesTheLongerSecretOut(t *testing.T) {
	short, long := "sk-12345678", "sk-12345678-and-the-rest"
	for _, secrets := range [][]string{{short, long}, {long, short}} {
		if got := llm.Scrub("it is "+long, secrets...); strings.Contains(got, "rest") {
			t.Errorf("of %q stays %q", long, got)
		}
	}
}
