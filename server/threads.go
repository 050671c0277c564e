package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

func (s *Server) threadRoutes() {
	handle(s, api.ThreadsCreate, s.createThread)
	handle(s, api.ThreadsList, s.listThreads)
	handle(s, api.ThreadsGet, s.getThread)
	handle(s, api.ThreadsUpdate, s.updateThread)
	handle(s, api.ThreadsErase, s.eraseThread)
	raw(s, api.ThreadsExport, s.exportThread)
	raw(s, api.ThreadsImport, s.importThread)
	handle(s, api.ThreadsVerify, func(ctx context.Context, c *Call, in *api.OneThread) (*perdure.Verification, error) {
		return c.Runtime.Verify(ctx, in.Thread)
	})
}

func (s *Server) createThread(ctx context.Context, c *Call, in *api.CreateThread) (*perdure.Thread, error) {
	t, err := c.Runtime.Create(ctx, perdure.CreateRequest{Thread: in.ID, Title: in.Title, User: s.owner(c, in.User), Metadata: in.Metadata,
		State: values(in.State), Key: in.Key, By: c.Who.Subject})
	if err != nil {
		return nil, err
	}
	c.made(t)
	return t, nil
}

// made sets the headers that lead to a thread that was just created.
func (c *Call) made(t *perdure.Thread) {
	c.About(t.ID)
	c.header.Set("Location", threadPath(t.ID))
	c.etag(t.Seq, t.Life)
}

// defaultRuns is how many runs come with a thread unless the request says.
const defaultRuns = 20

func (s *Server) getThread(ctx context.Context, c *Call, in *api.GetThread) (*perdure.Thread, error) {
	t, err := c.Runtime.GetPage(ctx, in.Thread, perdure.RunPage{Before: in.Before, Limit: cmp.Or(in.Runs, defaultRuns)})
	if err != nil {
		return nil, err
	}
	c.etag(t.Seq, t.Life)
	return t, nil
}

// statuses are the statuses that threads.list can select.
var statuses = []perdure.Status{perdure.Queued, perdure.Running, perdure.Suspended, perdure.Paused, perdure.Blocked, perdure.Quarantined,
	perdure.Succeeded, perdure.Failed, perdure.Cancelled, perdure.Damaged}

func (s *Server) listThreads(ctx context.Context, c *Call, in *api.ListThreads) (*api.ThreadPage, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return nil, err
	}
	if in.Status != "" && in.Status != perdure.Idle && !slices.Contains(statuses, in.Status) {
		return nil, api.Invalid("query status: there is no %.40q; there are %s", in.Status, strings.Trim(fmt.Sprint(append([]perdure.Status{perdure.Idle}, statuses...)), "[]"))
	}
	if slices.Contains(in.AsksOf, "") {
		return nil, api.Invalid("query asks_of: it is empty; name who, or leave it out for anyone")
	}
	var metadata map[string]string
	for _, pair := range in.Metadata {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, api.Invalid("query metadata: %.60q is not of the form KEY=VALUE", pair)
		}
		if _, twice := metadata[k]; twice {
			return nil, api.Invalid("query metadata: %.60q is there twice", k)
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[k] = v
	}
	if in.Why && limit > maxWhy {
		return nil, api.Invalid("query limit: it must be at most %d with why", maxWhy)
	}
	page := &api.ThreadPage{Threads: []perdure.Summary{}}
	page.Next, err = c.list(ctx, in.After, perdure.ListOptions{Why: in.Why, User: in.User, Flow: in.Flow, Status: in.Status, Metadata: metadata, Asks: in.Asks, AsksOf: in.AsksOf, Expiring: in.Expiring,
		Updated: in.Updated, UpdatedBefore: in.UpdatedBefore, Created: in.Created, CreatedBefore: in.CreatedBefore}, func(t perdure.Summary) bool {
		page.Threads = append(page.Threads, t)
		return len(page.Threads) < limit
	})
	return page, damage(&page.Damage, err)
}

// damage adds an error about damage to a page, which holds everything intact, and
// returns any other error.
func damage(told *[]string, err error) error {
	if !errors.Is(err, perdure.ErrCorrupt) && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	*told = append(*told, api.ProblemOf(err).Detail)
	return nil
}

// list calls fn with the threads that are selected, until it returns false. It
// returns the cursor of the last one, "" if there are no more.
func (c *Call) list(ctx context.Context, after string, o perdure.ListOptions, fn func(perdure.Summary) bool) (string, error) {
	if err := checkCursor(after); err != nil {
		return "", err
	}
	last, enough := "", false
	o.After = after
	for t, err := range c.Runtime.List(ctx, o) {
		if err != nil {
			return "", err
		}
		if enough {
			return last, nil
		}
		last = t.Cursor
		enough = !fn(t)
	}
	return "", ctx.Err()
}

func (s *Server) updateThread(ctx context.Context, c *Call, in *api.UpdateThread) (*perdure.Thread, error) {
	if in.Title == nil && len(in.Metadata) == 0 {
		return nil, api.Invalid("neither a title nor metadata is given")
	}
	if err := c.Runtime.SetMetadata(ctx, in.Thread, in.Title, in.Metadata, c.note("", in.IfMatch)); err != nil {
		return nil, err
	}
	c.load.letGo()
	return s.getThread(ctx, c, &api.GetThread{Thread: in.Thread})
}

func (s *Server) eraseThread(ctx context.Context, c *Call, in *api.EraseThread) (*api.None, error) {
	return nil, c.Runtime.Erase(ctx, in.Thread, perdure.EraseOptions{Note: c.note(in.Reason, in.IfMatch), Dependents: in.Dependents})
}

// maxImport is the size of the largest import in bytes.
const maxImport = 1 << 30

// exportThread streams a thread as a file.
func (s *Server) exportThread(w http.ResponseWriter, r *http.Request, c *Call, in *api.ExportThread) error {
	return s.sendFile(w, r, c, api.TypeLines, in.Thread, in.Thread+".ndjson", func() error {
		return c.Runtime.Export(r.Context(), in.Thread, w, perdure.ExportOptions{Redact: in.Redact})
	})
}

// sendFile streams a file. If that fails after a part was sent, the connection is
// aborted: the file must not look complete.
func (s *Server) sendFile(w http.ResponseWriter, r *http.Request, c *Call, media, thread, name string, write func() error) error {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	err := write()
	switch {
	case err == nil:
		return nil
	case c.about.status == 0:
		h.Del("Content-Disposition")
		return err
	case r.Context().Err() == nil:
		s.opts.Logger.Error("a file was cut off", "operation", r.Pattern, "thread", thread, "error", err)
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) importThread(w http.ResponseWriter, r *http.Request, c *Call, in *api.ImportThread) error {
	if err := checkMedia(r, api.TypeLines, api.TypeBytes); err != nil {
		return err
	}
	if r.ContentLength > maxImport { // before any of it is read
		return badBody(&http.MaxBytesError{Limit: maxImport})
	}
	body := &importBody{noted: noted{Reader: http.MaxBytesReader(w, r.Body, maxImport)}, c: c, length: r.ContentLength, room: maxImport}
	defer body.settle(0)
	id, err := c.Runtime.Import(threads.WithGuard(r.Context(), body), body, perdure.ImportOptions{As: in.As, Trust: keys(in.Trust)})
	switch {
	case body.read > body.room:
		return s.quotas.overBytes(c.Who.Tenant)
	case body.err != nil:
		return badBody(body.err)
	case err != nil:
		return err
	}
	body.settle(body.read) // before the response, after which the caller may send more
	t, err := c.Runtime.Get(r.Context(), id)
	if err != nil {
		return err
	}
	c.made(t)
	return c.Send(w, api.ThreadsImport.Status, t)
}

// keys returns the keys of a list that is separated by commas.
func keys(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// importBody is the body of an import. What its tenant may have bounds it once the import
// knows, from the first line, that it adds a thread.
type importBody struct {
	noted
	c      *Call
	length int64               // -1: not known
	room   int64               // how many bytes it may have
	read   int64               // how many it had so far
	done   func(written int64) // nil: nothing is reserved
}

var _ threads.Guard = (*importBody)(nil)

// Admit implements threads.Guard. It reserves room for the whole body.
func (b *importBody) Admit(ctx context.Context, g threads.Growth) error {
	err := b.c.load.Admit(ctx, g)
	if err == nil && b.done == nil {
		var room int64
		if room, b.done, err = b.c.s.quotas.reserve(ctx, b.c.Who.Tenant, b.length, maxImport); err == nil {
			b.room = room
		}
	}
	return err
}

// Read implements io.Reader.
func (b *importBody) Read(p []byte) (int, error) {
	n, err := b.noted.Read(p)
	if b.read += int64(n); b.read > b.room {
		return 0, errors.New("the tenant has no room for the rest")
	}
	return n, err
}

// settle replaces what is reserved by what was written, once.
func (b *importBody) settle(written int64) {
	if b.done != nil {
		b.done(written)
		b.done = nil
	}
}

// noted is a reader that keeps its error, other than the end.
type noted struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (n *noted) Read(p []byte) (int, error) {
	got, err := n.Reader.Read(p)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return got, err
}

// The sizes of a page.
const (
	defaultPage = 100
	maxPage     = 1000
	maxWhy      = 200 // threads are read for it
)

// pageSize returns how many items a page has, given what was asked for.
func pageSize(asked int) (int, error) {
	switch {
	case asked > maxPage:
		return 0, api.Invalid("query limit: it must be at most %d", maxPage)
	case asked <= 0:
		return defaultPage, nil
	}
	return asked, nil
}

// checkCursor refuses a text that cannot be the cursor of a page.
func checkCursor(cursor string) error {
	if len(cursor) > 200 || strings.ContainsFunc(cursor, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '.' && c != '~'
	}) {
		return api.Invalid("query after: it is not the cursor of a page")
	}
	return nil
}

// some returns a list that is [] in JSON if it is empty.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// threadPath returns the address of a thread.
func threadPath(thread string) string {
	id := url.PathEscape(thread)
	if id == "." || id == ".." { // dot segments would name a parent
		id = strings.ReplaceAll(id, ".", "%2E")
	}
	return "/v1/threads/" + id
}
