package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// plainServe serves a handler and returns its address.
func plainServe(t testing.TB, h http.Handler) string {
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestBodiesAreReadStrictly(t *testing.T) {
	s := servertest.New(t, server.Options{MaxBody: 10_000}, plainFlows()...)
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, c := range map[string]struct {
		body   string
		status int
		kind   string
	}{
		"an unknown member":          {`{"flow":"echo","colour":1}`, 400, "body"},
		"a member twice":             {`{"flow":"echo","flow":"ask"}`, 400, "body"},
		"a member twice, deep":       {`{"flow":"echo","input":{"a":1,"a":2}}`, 400, "body"},
		"another case":               {`{"Flow":"echo"}`, 400, "body"},
		"two cases":                  {`{"flow":"echo","FLOW":"ask"}`, 400, "body"},
		"a wrong type":               {`{"flow":1}`, 400, "body"},
		"a list in place of a map":   {`{"flow":"echo","metadata":[]}`, 400, "body"},
		"a fraction":                 {`{"flow":"echo","budget":{"a":1.5}}`, 400, "body"},
		"a number out of range":      {`{"flow":"echo","budget":{"a":1e30}}`, 400, "body"},
		"no object":                  {`[]`, 400, "body"},
		"null":                       {`null`, 400, "body"},
		"a missing member":           {`{}`, 400, "body"},
		"nothing":                    {``, 400, "body"},
		"something behind":           {`{"flow":"echo"} {}`, 400, "body"},
		"half of it":                 {`{"flow":"ec`, 400, "body"},
		"too deep":                   {`{"flow":"echo","input":` + deep + `}`, 400, "body"},
		"too large":                  {`{"flow":"echo","input":"` + strings.Repeat("x", 10_000) + `"}`, 413, "body-too-large"},
		"bytes that are no text":     {"{\"flow\":\"echo\",\"input\":\"\xff\"}", 400, "body"},
		"half a surrogate":           {`{"flow":"echo","input":"a\ud800b"}`, 400, "body"},
		"half a surrogate in a name": {`{"flow":"echo","input":{"\udfff":1}}`, 400, "body"},
		"a name that is no text":     {"{\"flow\":\"echo\",\"input\":{\"\xff\":1}}", 400, "body"},
		"an escaped name, twice":     {`{"flow":"echo","input":{"a":1,"\u0061":2}}`, 400, "body"},
		"a trailing comma":           {`{"flow":"echo",}`, 400, "body"},
		"a comment":                  {`{"flow":"echo"/**/}`, 400, "body"},
		"no number":                  {`{"flow":"echo","input":NaN}`, 400, "body"},
		"a body with a byte order":   {"\uFEFF{\"flow\":\"echo\"}", 400, "body"},
		"an empty name":              {`{"flow":"echo","":1}`, 400, "body"},
		"the name of a path's field": {`{"flow":"echo","thread":"x"}`, 400, "body"},
		"a header's name":            {`{"flow":"echo","Idempotency-Key":"x"}`, 400, "body"},
		"the minus of a hidden one":  {`{"flow":"echo","-":"x"}`, 400, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			s.Do("POST", "/v1/threads/t/runs", c.body, "Content-Type", "application/json").Problem(c.status, c.kind)
		})
	}
	long := strings.Repeat("é\\n", 2000)
	for path, body := range map[string]string{
		"/v1/threads/t/runs": `{"flow":"` + long + `"}`, "/v1/runs": `{"flow":"echo","` + long + `":1}`, "/v1/threads": `{"id":"` + long + `"}`,
		"/v1/tokens": `{"subject":"a","scopes":["` + long + `"]}`, "/v1/threads/t/fork?" + url.QueryEscape(long): `{}`,
	} {
		if r := s.Do("POST", path, body); r.Status < 400 || len(r.Body) > 600 || !json.Valid(r.Body) {
			t.Errorf("%.40s: %d bytes are said about a long text: %.900s", path, len(r.Body), r.Body)
		}
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", "x", "application/json; charset", "application/json; charset=utf-16", "application/json; charset=latin1"} {
		s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "Content-Type", media).Problem(415, "media-type")
	}
	s.Do("POST", "/v1/threads/t/runs?colour=red", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/t/runs?%zz", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("POST", "/v1/threads/%ff/runs", `{"flow":"echo","input":"x"}`).Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t", "").Problem(404, "no-thread") // none of it has done anything
	s.Do("POST", "/v1/threads/t/runs", `{"flow":"echo","input":"x"}`, "Content-Type", "application/json; charset=\"UTF-8\"").Want(202)
}

func TestWhatTheMuxSaysIsAProblemToo(t *testing.T) {
	s := plainSite(t)
	s.Do("GET", "/v1/nothing", "").Problem(404, "not-found")
	s.Do("POST", "/v1/threads/t/nothing", "{}").Problem(404, "not-found")
	for _, path := range []string{"//v1/threads", "/v1//threads", "/v1/./threads", "/v1/x/../threads", "/v1/threads/"} {
		s.Do("GET", path, "").Problem(404, "not-found")
	}
	r := s.Do("PUT", "/v1/threads", "{}").Problem(405, "method")
	if allow := r.Header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "POST") {
		t.Errorf("allowed is %q", allow)
	}
	s.Do("DELETE", "/healthz", "").Problem(405, "method")
	s.Do("PUT", "/v1/memory", "{}").Problem(404, "not-found") // and is not sent to an address with a slash
	head := s.Do("HEAD", "/v1/flows", "").Want(200)
	if len(head.Body) > 0 || head.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD answers %q with %v", head.Body, head.Header)
	}
	if r := s.Do("HEAD", "/v1/threads/none", ""); r.Status != 404 {
		t.Errorf("HEAD of nothing is %d", r.Status)
	}
}

// many returns a JSON list of n times the same.
func many(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// An element of a list is worth three bytes of a body, and was a thousand times
// as much work.
func TestListsOfObjectsAreBounded(t *testing.T) {
	s := newFuzzed(t)
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).Problem(400, "body")
	s.Do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).Problem(400, "invalid")
	s.Do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).Problem(400, "body")
}

// A condition that is not looked at would make a write another one.
func TestConditionsAreNotOverlooked(t *testing.T) {
	s := newFuzzed(t)
	s.Do("PATCH", "/v1/threads/t1", `{"title":"x"}`, "If-Match", `"1"`).Problem(412, "stale")
	s.Do("POST", "/v1/threads", `{"id":"t2"}`, "If-None-Match", `*`).Problem(400, "invalid")
	s.Do("GET", "/v1/threads/t1", "", "If-None-Match", `"1"`).Want(200)
	for _, seq := range []string{"-1", "+1", "1.0", "1e3", "0", "*", "", `""`, "18446744073709551616", `"1", "2"`, "0x1", "1 2", "١"} {
		s.Do("DELETE", "/v1/threads/t1", "", "If-Match", seq).Problem(400, "invalid")
	}
	s.Do("DELETE", "/v1/threads/t1", "", "If-Match", `"18446744073709551615"`).Problem(412, "stale")
	s.Do("GET", "/v1/threads/t1", "").Want(200)
}
