package server_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

var plainOptions = server.Options{Version: `test "1"`}

func TestStatsCountThreads(t *testing.T) {
	s := plainSite(t)
	plainWait(s, plainStart(s, "a", "echo", `"x"`))
	plainWait(s, plainStart(s, "b", "yes", `2`))
	stats := servertest.Decode[api.Stats](s.Do("GET", "/v1/stats", ""), 200)
	if stats.Threads != 2 || stats.Statuses["succeeded"] != 1 || stats.Statuses["suspended"] != 1 || stats.Asks != 2 || stats.Version != "test" || stats.Durability != "none" {
		t.Errorf("the stats are %+v", stats)
	}
	workers := servertest.Decode[api.WorkerList](s.Do("GET", "/v1/workers", ""), 200)
	if len(workers.Workers) != 1 || stats.Workers != 1 {
		t.Errorf("the workers are %v, %d", workers.Workers, stats.Workers)
	}
	me := servertest.Decode[api.Me](s.Do("GET", "/v1/me", ""), 200)
	if me.Subject == "" || len(me.Scopes) == 0 {
		t.Errorf("I am %+v", me)
	}
	s.Do("GET", "/openapi.json", "").Want(200)
}

// plainDead is a store whose lists fail.
type plainDead struct {
	store.Store
	dead bool
	why  error  // what its reads fail with, if not nil
	says string // to those who ask why
	warn []store.Warning
}

func (d *plainDead) Warnings(context.Context) ([]store.Warning, error) { return d.warn, nil }

func (d *plainDead) Detail() string { return d.says }

func (d *plainDead) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	if d.dead {
		return func(yield func(store.Cell, error) bool) {
			yield(store.Cell{}, cmp.Or(d.why, errors.New("canary of the disk")))
		}
	}
	return d.Store.List(ctx, prefix, after)
}

func (d *plainDead) Get(ctx context.Context, key string) (store.Cell, error) {
	if d.dead && d.why != nil {
		return store.Cell{}, d.why
	}
	return d.Store.Get(ctx, key)
}

func TestReadyTellsAStoreThatFailsAndAServerThatStops(t *testing.T) {
	dead := &plainDead{Store: memstore.New()}
	rt := servertest.Must(perdure.New(t.Context(), dead, perdure.Options{}, plainFlows()...))(t)
	// What was found is good for a moment, so each server is asked once.
	fresh := func() *servertest.Site {
		api := server.New(rt, server.Options{})
		return &servertest.Site{T: t, Runtime: rt, Server: api, URL: plainServe(t, api), Client: http.DefaultClient}
	}
	fresh().Do("GET", "/readyz", "").Want(200)
	dead.dead = true
	s := fresh()
	r := s.Do("GET", "/readyz", "").Problem(503, "unavailable")
	if bytes.Contains(r.Body, []byte("canary")) || bytes.Contains(r.Body, []byte("may have happened")) || r.Header.Get("Retry-After") == "" {
		t.Errorf("the answer is %s with %v", r.Body, r.Header)
	}
	s.Do("GET", "/healthz", "").Want(200)
	if samples := plainMetrics(t, s.Do("GET", "/metrics", "").Want(200).Body); samples["perdure_store_up{}"] != 0 || samples["go_goroutines{}"] == 0 {
		t.Errorf("the metrics are %v", samples)
	}
	for why, says := range map[error]string{store.ErrWeak: "keeps less", &store.CorruptError{Reason: "canary"}: "restore it from a backup"} {
		dead.why = why
		if r := fresh().Do("GET", "/readyz", "").Problem(503, "unavailable"); !bytes.Contains(r.Body, []byte(says)) || bytes.Contains(r.Body, []byte("canary")) {
			t.Errorf("after %v the answer is %s", why, r.Body)
		}
	}
	dead.why, dead.says = nil, "a node is missing"
	if r := fresh().Do("GET", "/readyz", "").Problem(503, "unavailable"); !bytes.Contains(r.Body, []byte(dead.says)) || bytes.Contains(r.Body, []byte("canary")) {
		t.Errorf("the answer is %s", r.Body)
	}
	dead.dead = false
	s.Do("GET", "/readyz", "").Problem(503, "unavailable")
	s = fresh()
	s.Do("GET", "/readyz", "").Want(200)
	s.Server.Close()
	s.Do("GET", "/readyz", "").Problem(503, "stopping")
	s.Do("GET", "/healthz", "").Want(200)
}

var (
	plainHelp   = regexp.MustCompile(`^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$`)
	plainType   = regexp.MustCompile(`^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary)$`)
	plainSample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (\S+)$`)
	plainLabel  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// plainMetrics reads Prometheus' text format, and fails at anything that is not
// of it. Samples are by name and labels.
func plainMetrics(t *testing.T, text []byte) map[string]float64 {
	t.Helper()
	samples, kinds := map[string]float64{}, map[string]string{}
	family, helped := "", ""
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if m := plainHelp.FindStringSubmatch(line); m != nil {
			if helped = m[1]; kinds[helped] != "" {
				t.Errorf("the family %s is there twice", helped)
			}
			continue
		}
		if m := plainType.FindStringSubmatch(line); m != nil {
			if m[1] != helped {
				t.Errorf("the type of %s follows the help of %s", m[1], helped)
			}
			family, kinds[m[1]] = m[1], m[2]
			continue
		}
		m := plainSample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("the line %q is no sample", line)
			continue
		}
		name := m[1]
		if kind := kinds[family]; kind == "histogram" || kind == "summary" {
			suffix, ok := strings.CutPrefix(name, family)
			if bare := "_bucket"; !ok || suffix != bare && (kind != "summary" || suffix != "") && suffix != "_sum" && suffix != "_count" {
				t.Errorf("the histogram %s has a sample %s", family, name)
			}
			name = family
		}
		if name != family {
			t.Errorf("the sample %s is in the family %s", m[1], family)
		}
		if kinds[family] == "counter" && !strings.HasSuffix(family, "_total") {
			t.Errorf("the counter %s does not end with _total", family)
		}
		seen := map[string]bool{}
		for _, l := range plainLabel.FindAllStringSubmatch(m[2], -1) {
			if seen[l[1]] {
				t.Errorf("a label is twice in %q", line)
			}
			seen[l[1]] = true
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil || math.IsNaN(v) {
			t.Errorf("the value of %q is no number", line)
		}
		key := fmt.Sprintf("%s{%s}", m[1], m[2])
		if _, twice := samples[key]; twice {
			t.Errorf("the sample %s is there twice", key)
		}
		samples[key] = v
	}
	return samples
}

func TestMetricsAreInPrometheusFormat(t *testing.T) {
	s := servertest.New(t, plainOptions, plainFlows()...)
	plainWait(s, plainStart(s, "a", "yes", `2`))
	for range 3 {
		s.Do("GET", "/v1/threads/none", "")
		s.Do("GET", "/v1/nowhere", "")
		s.Do("HEAD", "/v1/flows", "")
		s.Do("PUT", "/healthz", "")
	}
	r := s.Do("GET", "/metrics", "").Want(200)
	if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("the type is %s", got)
	}
	samples := plainMetrics(t, r.Body)
	for key, want := range map[string]float64{
		`perdure_http_requests_total{operation="threads.get",status="4xx"}`:               3,
		`perdure_http_requests_total{operation="flows.list",status="2xx"}`:                3,
		`perdure_http_requests_total{operation="none",status="4xx"}`:                      6,
		`perdure_http_requests_total{operation="runs.start",status="2xx"}`:                1,
		`perdure_http_request_duration_seconds_count{operation="threads.get"}`:            3,
		`perdure_http_request_duration_seconds_bucket{operation="threads.get",le="+Inf"}`: 3,
		`perdure_threads{status="suspended"}`:                                             1,
		`perdure_store_up{}`:                                                              1,
		`perdure_asks_open{}`:                                                             2,
		`perdure_streams_open{}`:                                                          0,
		`perdure_events_sent_total{}`:                                                     0,
	} {
		if got, there := samples[key]; got != want || !there {
			t.Errorf("%s is %v (there: %t), want %v", key, got, there, want)
		}
	}
	last := -1.0
	for _, le := range []string{"0.001", "0.005", "0.025", "0.1", "0.5", "2.5", "10", "60", "+Inf"} {
		v, there := samples[fmt.Sprintf(`perdure_http_request_duration_seconds_bucket{operation="threads.get",le=%q}`, le)]
		if !there || v < last {
			t.Errorf("the bucket %s has %v behind %v", le, v, last)
		}
		last = v
	}
	if samples["go_goroutines{}"] < 1 || samples["go_memstats_heap_alloc_bytes{}"] < 1 {
		t.Error("there are no goroutines, or no memory")
	}
	if !bytes.Contains(r.Body, []byte(`version="test \"1\""`)) {
		t.Error("the version is not escaped")
	}
}

func TestWhereWorkersRunIsForAdmins(t *testing.T) {
	site, tokens := authSite(t, server.Options{}, whoFlow())
	whoAsk(site, "acme", "t") // so that a worker is there
	var all, some api.WorkerList
	site.Do("GET", "/v1/workers", "").Want(200, &all)
	site.Token = authSecret(t, tokens, "acme", "eve", api.ScopeRead)
	site.Do("GET", "/v1/workers", "").Want(200, &some)
	if len(all.Workers) != 1 || all.Workers[0].PID == 0 || len(some.Workers) != 1 || some.Workers[0].PID != 0 || some.Workers[0].Host != "" {
		t.Errorf("an admin sees %+v, a reader %+v", all.Workers, some.Workers)
	}
}

func TestHealth(t *testing.T) {
	s := servertest.New(t, server.Options{}, perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) { return in, nil }))
	s.Do("GET", "/healthz", "").Want(200)
	flows := servertest.Decode[api.FlowList](s.Do("GET", "/v1/flows", ""), 200)
	if len(flows.Flows) != 1 || flows.Flows[0].Name != "echo" {
		t.Errorf("the flows are %v", flows)
	}
	s.Do("GET", "/v1/threads/none", "").Problem(404, "no-thread")
}

func TestMemoryIsKeptWithVersions(t *testing.T) {
	s := plainSite(t)
	const at = "/v1/memory/user/ann/colour"
	var item memory.Item
	s.Do("GET", at, "").Problem(404, "no-memory")
	first := s.Do("PUT", at, `{"value":"red"}`, "If-None-Match", "*").Want(200, &item).Header.Get("ETag")
	if item.Key != "colour" || !slices.Equal(item.Namespace, []string{"user", "ann"}) || first != fmt.Sprintf("%q", item.Version) {
		t.Errorf("the item is %+v with the tag %s", item, first)
	}
	p := servertest.Decode[api.Problem](s.Do("PUT", at, `{"value":"blue"}`, "If-None-Match", "*").Problem(412, "version"), 412)
	if p.Version != item.Version {
		t.Errorf("the problem names the version %q, it is %q", p.Version, item.Version)
	}
	second := s.Do("PUT", at, `{"value":"blue","ttl":3600}`, "If-Match", first).Want(200, &item).Header.Get("ETag")
	if second == first || item.Expires.IsZero() {
		t.Errorf("the item is %+v with the tag %s", item, second)
	}
	s.Do("PUT", at, `{"value":"green"}`, "If-Match", first).Problem(412, "version").Want(412, &p)
	if p.Version != item.Version {
		t.Errorf("the problem names the version %q, it is %q", p.Version, item.Version)
	}
	if tag := s.Do("GET", at, "").Want(200, &item).Header.Get("ETag"); tag != second || string(item.Value) != `"blue"` {
		t.Errorf("the item is %s with the tag %s", item.Value, tag)
	}
	s.Do("DELETE", at, "", "If-Match", first).Problem(412, "version")
	s.Do("DELETE", at, "", "If-Match", second).Want(204)
	s.Do("GET", at, "").Problem(404, "no-memory")
	s.Do("DELETE", at, "").Want(204) // it is forgotten already
}

func TestOfTwoWhoRememberOneWins(t *testing.T) {
	s := plainSite(t)
	tag := s.Do("PUT", "/v1/memory/a/k", `{"value":0}`).Want(200).Header.Get("ETag")
	won := 0
	for _, r := range servertest.Together(8, func(i int) *servertest.Reply {
		return s.Do("PUT", "/v1/memory/a/k", fmt.Sprintf(`{"value":%d}`, i), "If-Match", tag)
	}) {
		if r.Status == 200 {
			won++
		} else {
			r.Problem(412, "version")
		}
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
}

func TestWhatCannotBeRemembered(t *testing.T) {
	s := plainSite(t)
	s.Do("PUT", "/v1/memory/alone", `{"value":1}`).Problem(400, "invalid")
	s.Do("GET", "/v1/memory/alone", "").Problem(400, "invalid")
	s.Do("GET", "/v1/memory/a/", "").Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{}`).Problem(400, "body")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1,"ttl":-1}`).Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1,"ttl":9223372036854775807}`).Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1}`, "If-None-Match", `"3"`).Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1}`, "If-None-Match", `*`, "If-Match", `"3"`).Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1}`, "If-Match", ``).Problem(400, "invalid")
	s.Do("PUT", "/v1/memory/a/k", `{"value":1}`, "If-Match", `"3"`).Problem(412, "version")
	s.Do("PUT", "/v1/memory/"+strings.Repeat("a/", 20)+"k", `{"value":1}`).Problem(400, "namespace")
	s.Do("PUT", "/v1/memory/a/"+strings.Repeat("k", 600), `{"value":1}`).Problem(400, "namespace")
	s.Do("PUT", "/v1/memory/a/%ff", `{"value":1}`).Problem(400, "namespace")
	s.Do("PUT", "/v1/memory/a/k", `{"value":"`+strings.Repeat("x", 200<<10)+`"}`).Problem(413, "too-large")
	s.Do("GET", "/v1/memory/a/k", "").Problem(404, "no-memory")
}

func TestAnyTextIsASegmentOfMemory(t *testing.T) {
	s := plainSite(t)
	for path, want := range map[string][]string{
		"user//note":      {"user", "", "note"}, // of threads without an owner
		"/x":              {"", "x"},
		"a%2Fb/c":         {"a/b", "c"},
		"a/%2E%2E/b":      {"a", "..", "b"},
		"a/%C3%A9%20%3F":  {"a", "é ?"},
		"a//b//c":         {"a", "", "b", "", "c"},
		"%25/%2525":       {"%", "%25"},
		"a/b%0Ac":         {"a", "b\nc"},
		"user/ann%40x/k+": {"user", "ann@x", "k+"},
	} {
		item := servertest.Decode[memory.Item](s.Do("PUT", "/v1/memory/"+path, `{"value":1}`), 200)
		if got := append(item.Namespace, item.Key); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
		s.Do("GET", "/v1/memory/"+path, "").Want(200)
		if _, err := memory.Of(s.Runtime).Get(t.Context(), want[:len(want)-1], want[len(want)-1]); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestMemoryIsListedAndSearched(t *testing.T) {
	s := plainSite(t)
	for i := range 5 {
		s.Do("PUT", fmt.Sprintf("/v1/memory/user/ann/k%d", i), fmt.Sprintf(`{"value":"likes number %d"}`, i)).Want(200)
	}
	s.Do("PUT", "/v1/memory/user/bob/k", `{"value":"likes cats"}`).Want(200)
	list := func(query string) (keys []string) {
		t.Helper()
		after := ""
		for range 10 {
			var page api.MemoryPage
			s.Do("GET", "/v1/memory?"+query+"&after="+after, "").Want(200, &page)
			for _, i := range page.Items {
				keys = append(keys, i.Key)
			}
			if after = page.Next; after == "" {
				slices.Sort(keys)
				return keys
			}
		}
		t.Fatal("the pages do not end")
		return nil
	}
	all := []string{"k0", "k1", "k2", "k3", "k4"}
	for query, want := range map[string][]string{
		"ns=user&ns=ann": all, "ns=user&ns=ann&limit=2": all, "ns=user&ns=ann&limit=5": all, "ns=user&ns=eve": nil,
		"q=cats": {"k"}, "ns=user&q=LIKES+3": {"k3"}, "limit=1": append([]string{"k"}, all...),
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	s.Do("GET", "/v1/memory?limit=1001", "").Problem(400, "invalid")
	s.Do("GET", "/v1/memory?after=%2F", "").Problem(400, "invalid")
	s.Do("GET", "/v1/memory?"+strings.Repeat("ns=a&", 20), "").Problem(400, "namespace")
}

// TestFlowsSayWhatTheyTake: by their Go types, and what these decode from.
func TestFlowsSayWhatTheyTake(t *testing.T) {
	type order struct {
		Item  string    `json:"item" jsonschema:"what to buy"`
		Count int       `json:"count,omitempty"`
		By    time.Time `json:"by,omitzero"`
	}
	s := servertest.New(t, server.Options{},
		perdure.NewFlow("order", func(context.Context, order) (string, error) { return "", nil }),
		perdure.NewFlow("text", func(context.Context, string) (string, error) { return "", nil }),
		perdure.NewFlow("own", func(context.Context, []netip.Addr) (string, error) { return "", nil }),
		agent.NewFlow("clerk", agent.New("clerk", script.New(), agent.Options{})))
	got := string(s.Do("GET", "/v1/flows", "").Want(200).Body)
	const want = `{"flows":[{"name":"clerk","agent":true},` +
		`{"name":"order","input":{"type":"object","properties":{"item":{"type":"string","description":"what to buy"},"count":{"type":"integer"},"by":{"type":"string","format":"date-time"}},"additionalProperties":false}},` +
		`{"name":"own","input":{"type":["null","array"],"items":{"type":"string"}}},{"name":"text","input":{"type":"string"}}]}`
	if got != want {
		t.Errorf("the flows are\n%s\nwant\n%s", got, want)
	}
}

// TestWarningsOfAStore are counted by kind for everybody who sees metrics, and told to
// admins.
func TestWarningsOfAStore(t *testing.T) {
	s := servertest.NewOn(t, &plainDead{Store: memstore.New(), warn: []store.Warning{{Kind: store.WarnNode, Detail: "node b is missing", Fix: "start it"}}}, server.Options{Auth: servertest.People{
		"admin":  {Subject: "admin", Scopes: []api.Scope{api.ScopeAdmin}},
		"other":  {Subject: "other", Tenant: "other", Scopes: []api.Scope{api.ScopeAdmin}},
		"reader": {Subject: "reader", Scopes: []api.Scope{api.ScopeRead}},
	}}, plainFlows()...)
	as := func(token, path string) []byte {
		return s.Do("GET", path, "", "Authorization", "Bearer "+token).Want(200).Body
	}
	if samples := plainMetrics(t, as("admin", "/metrics")); samples[`perdure_store_warnings{kind="node"}`] != 1 || samples[`perdure_store_warnings{kind="space"}`] != 0 {
		t.Errorf("the metrics are %v", samples)
	}
	if text := as("admin", "/v1/stats"); !bytes.Contains(text, []byte("node b is missing")) {
		t.Errorf("an admin sees %s", text)
	}
	for _, who := range []string{"reader", "other"} {
		if text := as(who, "/v1/stats"); bytes.Contains(text, []byte("node b")) {
			t.Errorf("%s sees %s", who, text)
		}
	}
}
