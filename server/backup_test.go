package server_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
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

// TestBackupWhileOneIsMade: a file store makes one backup at a time, and one whose
// client has gone ends, so that the next is made.
func TestBackupWhileOneIsMade(t *testing.T) {
	s := servertest.Must(filestore.Open(t.Context(), filepath.Join(t.TempDir(), "store"), filestore.Options{}))(t)
	slow := &slowBackups{Store: s, begun: make(chan bool), ended: make(chan error, 2)}
	site := servertest.NewOn(t, slow, server.Options{}, testFlows()...)
	c := servertest.Must(client.New(site.URL, client.Options{Attempts: -1}))(t)
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := client.Open(ctx, c, api.BackupTake, api.Nothing{}, nil)
		answered <- err
	}()
	<-slow.begun
	second := site.Do("POST", "/v1/backup", "").Problem(409, "busy")
	if p := servertest.Decode[api.Problem](second, 409); p.Detail != "a backup is being made; wait until it is complete, and try again" {
		t.Errorf("a second backup is refused with %q", p.Detail)
	}
	if err := <-slow.ended; !errors.Is(err, store.ErrBackup) {
		t.Errorf("the second backup: %v", err)
	}
	leave()
	if err := <-slow.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the backup of a client that left: %v", err)
	}
	<-answered
	if _, err := s.Backup(t.Context(), t.TempDir()); err != nil {
		t.Errorf("the next backup: %v", err)
	}
}

// slowBackups is a file store that copies no file until whoever wants the backup has
// gone.
type slowBackups struct {
	*filestore.Store
	begun chan bool
	ended chan error
}

func (s *slowBackups) Backup(ctx context.Context, dir string) (string, error) {
	url, err := s.Store.Backup(&heldContext{Context: ctx, begun: s.begun}, dir)
	s.ended <- err
	return url, err
}

// heldContext says that it is not over once, when a backup is called, and then not
// before it is.
type heldContext struct {
	context.Context
	begun chan bool
	asked atomic.Int32
}

func (c *heldContext) Err() error {
	if n := c.asked.Add(1); n > 1 {
		if n == 2 {
			c.begun <- true
		}
		<-c.Done()
	}
	return c.Context.Err()
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
