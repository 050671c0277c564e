package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
)

// A reader who was away while its thread was erased and the id used again is
// told so, and the new thread has ids of its own.
func TestAReusedIDHasOtherEventIDs(t *testing.T) {
	s := servertest.New(t, server.Options{}, plainFlows()...)
	idsOf := func(path string, headers ...string) (ids []string) {
		t.Helper()
		for line := range strings.Lines(string(s.Do("GET", path, "", append(headers, "Accept", api.TypeEvents)...).Want(200).Body)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	stream := "/v1/threads/t/events?run=newest"
	live := func() []string {
		t.Helper()
		plainWait(s, plainStart(s, "t", "echo", `"x"`))
		return idsOf(stream)
	}
	first := live()
	if !slices.IsSorted(first) || slices.ContainsFunc(first, func(id string) bool { return strings.Contains(id, "-") }) {
		t.Fatalf("the ids of the first life are %v", first)
	}
	s.Do("DELETE", "/v1/threads/t", "").Want(204)
	s.Do("GET", stream, "", "Accept", api.TypeEvents, "Last-Event-ID", first[0]).Problem(410, "erased")
	second := live()
	info := new(perdure.Thread)
	s.Do("GET", "/v1/threads/t", "").Want(200, info)
	if info.Life == "" || len(second) != len(first) {
		t.Fatalf("the second life is %+v with the ids %v", info, second)
	}
	for i, id := range second {
		number, done := strings.CutSuffix(first[i], ".done")
		want := number + "-" + info.Life
		if done {
			want += ".done"
		}
		if id != want {
			t.Errorf("the id %s of the first life is %s in the second, want %s", first[i], id, want)
		}
	}
	s.Do("DELETE", "/v1/threads/t", "").Want(204)
	live()
	s.Do("GET", "/v1/threads/t", "").Want(200, info)
	foreign := append(append([]string{"1", "2.done", "1-x", "0-x"}, first...), second...)
	for _, id := range foreign {
		for _, accept := range []string{api.TypeEvents, api.TypeJSON} {
			bare, _, _ := strings.Cut(id, ".")
			s.Do("GET", "/v1/threads/t/events?after="+bare, "", "Accept", accept).Problem(410, "erased")
		}
		s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", id).Problem(410, "erased")
		s.Do("HEAD", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", id).Want(410)
		s.Do("GET", stream, "", "Accept", api.TypeEvents, "Last-Event-ID", id).Problem(410, "erased")
	}
	// Who reads the new one goes on with it, by pages and streams.
	third := idsOf(stream)
	if got := idsOf(stream, "Last-Event-ID", third[1]); !slices.Equal(got, third[2:]) {
		t.Errorf("behind %s come %v of %v", third[1], got, third)
	}
	var pages []string
	for after := ""; ; {
		var page api.EventPage
		s.Do("GET", "/v1/threads/t/events?limit=2&after="+after, "").Want(200, &page)
		for _, e := range page.Events {
			pages = append(pages, string(api.IDOf(e.Seq, e.Life, false)))
		}
		if page.Next == 0 {
			break
		}
		after = fmt.Sprint(page.Next, "-", page.Events[0].Life)
	}
	if all := idsOf("/v1/threads/t/events?run=newest&after="); len(pages) == 0 || !strings.HasSuffix(pages[0], "-"+info.Life) || !slices.Contains(all, pages[len(pages)-1]) {
		t.Errorf("the pages have %v", pages)
	}
}
