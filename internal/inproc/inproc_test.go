package inproc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/inproc"
)

func get(ctx context.Context, t *testing.T, c *http.Client, url string, body io.Reader) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(r)
}

func TestAnyAddressReachesTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := inproc.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %d", r.Host, r.URL.Path, len(data))
		}))
		defer stop()
		for host, size := range map[string]int{"a.example": 0, "b.example:99": 5 << 20} {
			resp, err := get(t.Context(), t, c, "http://"+host+"/x", strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf("%s /x %d", host, size); err != nil || string(data) != want {
				t.Errorf("%s %v, want %s", data, err, want)
			}
		}
	})
}

func TestStreamArrivesWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan string)
		c, stop := inproc.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for text := range next {
				fmt.Fprintln(w, text)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
		}))
		defer stop()
		go func() { next <- "0" }()
		resp, err := get(t.Context(), t, c, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 5 {
			if !lines.Scan() || lines.Text() != fmt.Sprint(i) {
				t.Fatalf("%q %v", lines.Text(), lines.Err())
			}
			if i < 4 {
				next <- fmt.Sprint(i + 1)
			}
		}
		close(next)
		if lines.Scan() || lines.Err() != nil {
			t.Errorf("%q %v", lines.Text(), lines.Err())
		}
	})
}

func TestCallerWhoLeavesCancelsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		c, stop := inproc.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			left <- r.Context().Err()
		}))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := get(ctx, t, c, "http://x/", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestClosingEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := inproc.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("x"))
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		resp, err := get(t.Context(), t, c, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		stop()
		if data, err := io.ReadAll(resp.Body); string(data) != "x" || err == nil {
			t.Errorf("%q %v", data, err)
		}
		if _, err := get(t.Context(), t, c, "http://x/", nil); err == nil || !strings.Contains(err.Error(), "inproc: the server is closed") {
			t.Errorf("after the end: %v", err)
		}
		stop() // again
	})
}
