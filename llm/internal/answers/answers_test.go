package answers

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestRetryAfterIsReadInEveryWayItIsWritten(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, test := range []struct {
		header map[string]string
		want   time.Duration
	}{
		{nil, 0},
		{map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{map[string]string{"Retry-After": "0.5"}, time.Second / 2},
		{map[string]string{"Retry-After": "7", "Retry-After-Ms": "250"}, 250 * time.Millisecond},
		{map[string]string{"Retry-After": date(time.Minute), "Date": date(0)}, time.Minute},
		{map[string]string{"Retry-After": date(-time.Minute), "Date": date(0)}, 0},
		{map[string]string{"Retry-After": date(1000 * time.Hour), "Date": date(0)}, MaxWait},
		{map[string]string{"Retry-After": "1e300"}, MaxWait},
		{map[string]string{"Retry-After": "-5"}, 0},
		{map[string]string{"Retry-After": "soon"}, 0},
		{map[string]string{"Retry-After": "NaN"}, 0},
	} {
		h := http.Header{}
		for k, v := range test.header {
			h.Set(k, v)
		}
		if got := RetryAfter(h); got != test.want {
			t.Errorf("%v: %v, want %v", test.header, got, test.want)
		}
	}
}

func TestShortIsValidAndShort(t *testing.T) {
	for _, s := range []string{"", " a ", "\xff\xfe", strings.Repeat("ü", 10_000), strings.Repeat("x", 499) + "ü"} {
		if got := Short(s); !utf8.ValidString(got) || len(got) > 510 {
			t.Errorf("%.20q: %d bytes, valid: %v", s, len(got), utf8.ValidString(got))
		}
	}
}
