package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

func (s *Server) backupRoutes() {
	raw(s, api.BackupTake, s.takeBackup)
}

// wholeStore returns an error unless the caller may work on the data of all tenants.
func (s *Server) wholeStore(c *Call, what string) error {
	if s.opts.Auth != nil && (c.Who.Tenant != "" || c.Who.User != "") {
		return fmt.Errorf("%w: %s all tenants, and needs an admin of the default tenant", api.ErrScope, what)
	}
	return nil
}

// takeBackup streams a copy of the store. If that fails after a part was sent, the
// connection is aborted: the file must not look complete.
func (s *Server) takeBackup(w http.ResponseWriter, r *http.Request, c *Call, _ *api.Nothing) error {
	if err := s.wholeStore(c, "a backup holds the data of"); err != nil {
		return err
	}
	err := backup.Send(r.Context(), threads.Behind(s.rt).All.Store, w, func(*backup.Manifest) {
		c.load.letGo()
		w.Header().Set("Content-Type", api.TypeTar)
		w.Header().Set("Content-Disposition", `attachment; filename="perdure-backup.tar"`)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFull) && c.about.status == 0:
		p := *api.ProblemOf(err)
		p.Detail = "the server copies to " + os.TempDir() + ", whose disk is full: free some space there, or start the server with another TMPDIR"
		return &p
	case errors.Is(err, backup.ErrUnsupported):
		return fmt.Errorf("%w: %w", api.ErrUnsupported, err)
	case c.about.status == 0:
		return err
	case r.Context().Err() == nil:
		s.opts.Logger.Error("a backup was cut off", "error", err)
	}
	panic(http.ErrAbortHandler)
}
