package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
)

// TestBackup gets a backup of a file store from the server that has it open. Only
// an admin of the default tenant does.
func TestBackup(t *testing.T) {
	s := servertest.Must(filestore.Open(t.Context(), filepath.Join(t.TempDir(), "store"), filestore.Options{}))(t)
	site := servertest.NewOn(t, s, server.Options{Auth: servertest.People{
		"ops":   {Subject: "ops", Scopes: []api.Scope{api.ScopeAdmin}},
		"other": {Subject: "other", Tenant: "other", Scopes: []api.Scope{api.ScopeAdmin}},
		"run":   {Subject: "run", Scopes: []api.Scope{api.ScopeRead, api.ScopeRun, api.ScopeAnswer}},
	}}, testFlows()...)
	site.Do("POST", "/v1/threads", `{"id":"a"}`, "Authorization", "Bearer ops").Want(201)
	for _, who := range []string{"other", "run"} {
		site.Do("POST", "/v1/backup", "", "Authorization", "Bearer "+who).Problem(403, "scope")
	}
	got := site.Do("POST", "/v1/backup", "", "Authorization", "Bearer ops").Want(200)
	if got.Header.Get("Content-Type") != api.TypeTar {
		t.Errorf("the type is %q", got.Header.Get("Content-Type"))
	}
	dir := filepath.Join(t.TempDir(), "b")
	m := servertest.Must(backup.Receive(t.Context(), strings.NewReader(string(got.Body)), dir))(t)
	if m.Threads != 1 {
		t.Errorf("the manifest is %+v", m)
	}

	site = servertest.New(t, server.Options{}, testFlows()...)
	site.Do("POST", "/v1/backup", "").Problem(422, "unsupported")
}

// unclosed is a store that several sites use.
type unclosed struct{ store.Store }

func (unclosed) Close() error          { return nil }
func (u unclosed) Unwrap() store.Store { return u.Store }

// TestRestoredIDs reads a thread with ids from before its store was restored: one
// that it has, one that it has reached again, and one beyond its end.
func TestRestoredIDs(t *testing.T) {
	s := unclosed{memstore.New()}
	site := servertest.NewOn(t, s, server.Options{}, testFlows()...)
	site.Do("POST", "/v1/threads", `{"id":"a"}`).Want(201)
	path := "/v1/threads/a/events"
	stream := []string{"Accept", "text/event-stream"}
	site.Do("GET", path, "", append(stream, "Last-Event-ID", "99")...).Problem(400, "ahead")
	servertest.Check(t, threads.MarkRestored(t.Context(), s, time.Now()))
	site = servertest.NewOn(t, s, server.Options{}, testFlows()...)
	for _, id := range []string{"1", "99", "1-x"} {
		site.Do("GET", path, "", append(stream, "Last-Event-ID", id)...).Problem(410, "restored")
		site.Do("GET", path+"?after="+id, "").Problem(410, "restored")
	}
	page := servertest.Decode[api.EventPage](site.Do("GET", path, ""), 200)
	life := page.Events[0].Life
	if life == "" {
		t.Fatal("the events have no life")
	}
	site.Do("GET", fmt.Sprintf("%s?after=0-%s", path, life), "").Want(200)
}
