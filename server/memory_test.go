package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
)

func TestMemoryIsKeptWithVersions(t *testing.T) {
	s := plainSite(t)
	const at = "/v1/memory/user/ann/colour"
	var item memory.Item
	s.Do("GET", at, "").Problem(404, "no-memory")
	first := s.Do("PUT", at, `{"value":"red"}`, "If-None-Match", "*").Want(200, &item).Header.Get("ETag")
	if item.Key != "colour" || !slices.Equal(item.Namespace, []string{"user", "ann"}) || first != fmt.Sprintf("%q", item.Version) {
		t.Errorf("the item is %+v with the tag %s", item, first)
	}
	var p api.Problem
	s.Do("PUT", at, `{"value":"blue"}`, "If-None-Match", "*").Problem(412, "version").Want(412, &p)
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
	replies := make([]*servertest.Reply, 8)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = s.Do("PUT", "/v1/memory/a/k", fmt.Sprintf(`{"value":%d}`, i), "If-Match", tag) })
	}
	wg.Wait()
	won := 0
	for _, r := range replies {
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
		var item memory.Item
		s.Do("PUT", "/v1/memory/"+path, `{"value":1}`).Want(200, &item)
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
