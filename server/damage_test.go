package server_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
)

// A thread with damage in its middle, or in its first entry, says so on every
// route, in a stream also behind what is good, and in lists.
func TestADamagedThreadSaysSo(t *testing.T) {
	for what, at := range map[string]struct {
		mark string
		good uint64
	}{"the middle": {`"k":"suspended"`, 4}, "the first entry": {`"k":"created"`, 0}} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			open := func() store.Store {
				s := servertest.Must(store.Open(t.Context(), "file:"+dir))(t)
				return s
			}
			t.Run("before", func(t *testing.T) {
				s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
				plainWait(s, plainStart(s, "t", "yes", "2"))
			})
			damaged := 0
			err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(filepath.Join(dir, name))
				if i := bytes.Index(data, []byte(at.mark)); err == nil && i > 0 {
					damaged++
					data[i+5] ^= 1
					err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
				}
				return err
			})
			if err != nil || damaged != 1 {
				t.Fatalf("%d files were damaged: %v", damaged, err)
			}
			s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
			detail := s.Do("GET", "/v1/threads/t", "").Problem(422, "corrupt")
			if text := string(detail.Body); strings.Contains(text, "entry 0") || strings.Contains(text, "thread ,") || !strings.Contains(text, "thread t") {
				t.Errorf("it says %s", text)
			}
			var page api.ThreadPage
			s.Do("GET", "/v1/threads", "").Want(200, &page)
			if len(page.Threads) != 1 || page.Threads[0].Status != perdure.Damaged {
				t.Errorf("it is listed as %+v", page.Threads)
			}
			var events api.EventPage
			if at.good == 0 {
				s.Do("GET", "/v1/threads/t/events", "").Problem(422, "corrupt")
				s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents).Problem(422, "corrupt")
			} else {
				s.Do("GET", "/v1/threads/t/events", "").Want(200, &events)
				if n := len(events.Events); n == 0 || events.Next != events.Events[n-1].Seq {
					t.Fatalf("the page is %+v", events)
				}
				after := api.IDOf(events.Next, "", false)
				s.Do("GET", "/v1/threads/t/events?after="+string(after), "").Problem(422, "corrupt")
				s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents, "Last-Event-ID", string(after)).Problem(422, "corrupt")
				stream := s.Do("GET", "/v1/threads/t/events", "", "Accept", api.TypeEvents)
				if text := string(stream.Body); stream.Status != 200 || !strings.Contains(text, "\nevent: corrupt\ndata: {") || !strings.Contains(text, "urn:perdure:problem:corrupt") {
					t.Errorf("the stream is %d %s", stream.Status, text)
				}
			}
		})
	}
}

// Damage beside threads hides none of them: a damaged summary is mended, and
// what belongs to nobody is named.
func TestDamageHidesNoThreads(t *testing.T) {
	dir := t.TempDir()
	open := func() store.Store {
		s := servertest.Must(store.Open(t.Context(), "file:"+dir))(t)
		return s
	}
	t.Run("before", func(t *testing.T) {
		s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
		for _, id := range []string{"a", "b", "c"} {
			plainWait(s, plainStart(s, id, "yes", "2"))
		}
	})
	files, err := filepath.Glob(filepath.Join(dir, "cells", "*", "thread-*.json"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	data := servertest.Must(os.ReadFile(files[1]))(t)
	stray := bytes.Replace([]byte(files[1]), []byte(".json"), []byte("0.json"), 1)
	servertest.Check(t, os.WriteFile(string(stray), data, 0o600))
	data[len(data)/2] ^= 1
	servertest.Check(t, os.WriteFile(files[1], data, 0o600))
	s := servertest.NewOn(t, open(), server.Options{}, plainFlows()...)
	for range 2 {
		var threads api.ThreadPage
		s.Do("GET", "/v1/threads", "").Want(200, &threads)
		var asks api.AskPage
		s.Do("GET", "/v1/asks", "").Want(200, &asks)
		if len(threads.Threads) != 3 || len(asks.Asks) != 6 || len(threads.Damage) != 1 || len(asks.Damage) != 1 || !strings.Contains(asks.Damage[0], filepath.Base(string(stray))) {
			t.Errorf("there are %d threads and %d asks; damage: %q and %q", len(threads.Threads), len(asks.Asks), threads.Damage, asks.Damage)
		}
	}
	var ready api.Health
	s.Do("GET", "/readyz", "").Want(200, &ready)
	var stats api.Stats
	s.Do("GET", "/v1/stats", "").Want(200, &stats)
	if stats.Threads != 3 {
		t.Errorf("%+v", stats)
	}
}
