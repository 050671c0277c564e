package link

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	_ "github.com/perdure/perdure/archive/s3archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/s3test"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// TestArchiveThatIsAway opens a store whose archive does not answer: everything works but
// what needs the archive, and that too as soon as it answers.
func TestArchiveThatIsAway(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	fake := s3test.NewFake()
	service := httptest.NewServer(fake)
	t.Cleanup(service.Close)
	answer := func(status int, code string) {
		fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
			s3test.Refuse(w, status, code)
			return true
		})
	}
	open := func(url string) (*perdure.Runtime, string, error) {
		var log bytes.Buffer
		c := &Connector{Store: "sqlite:" + filepath.Join(t.TempDir(), "db"), Archive: url, Verb: "serve", Flows: []perdure.Flow{kit.EchoFlow("echo")}}
		rt, end, err := c.OpenRuntime(t.Context(), c.Store, perdure.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			t.Cleanup(end)
		}
		return rt, log.String(), err
	}
	at := s3test.StoreURL(service.URL, t.TempDir())

	answer(http.StatusNotImplemented, "Away") // which minio-go does not repeat
	rt, said, err := open(at)
	kit.NoErr(t, err)
	if !strings.Contains(said, "the archive cannot be reached") {
		t.Errorf("the log says %q", said)
	}
	_, err = rt.Create(t.Context(), perdure.CreateRequest{Thread: "t"})
	kit.NoErr(t, err)
	if _, err := rt.Archive(t.Context(), "t", perdure.Note{}); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("archiving while the archive is away: %v", err)
	}
	answer(http.StatusForbidden, "AccessDenied")
	if _, err := rt.Archive(t.Context(), "t", perdure.Note{}); !errors.Is(err, archive.ErrUnavailable) {
		t.Errorf("archiving while the archive refuses the keys: %v", err)
	}
	if _, _, err := open(at); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("an archive that refuses the keys is opened: %v", err)
	}
	fake.Before(nil)
	a, err := rt.Archive(t.Context(), "t", perdure.Note{})
	kit.NoErr(t, err)
	if where, _, _ := strings.Cut(at, "?"); !strings.HasPrefix(a.Where, where+"/") {
		t.Errorf("it is in %s", a.Where)
	}
	kit.NoErr(t, rt.Restore(t.Context(), "t", perdure.RestoreOptions{}))
}
