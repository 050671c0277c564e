package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
)

// adkRoutes binds the routes that clients of the Agent Development Kit call. An
// app is a flow, a session a thread of one user, an invocation a run.
func (s *Server) adkRoutes() {
	s.face("GET /list-apps", api.ScopeRead, s.adkApps)
	s.face("GET /version", api.ScopeNone, s.adkVersion)
	s.face("GET /health", api.ScopeNone, s.adkHealth)
	s.face("GET /apps/{app}/app-info", api.ScopeRead, s.adkAppInfo)

	const sessions = "/apps/{app}/users/{user}/sessions"
	s.face("POST "+sessions, api.ScopeRun, s.adkCreate)
	s.face("GET "+sessions, api.ScopeRead, s.adkSessions)
	s.face("POST "+sessions+"/{session}", api.ScopeRun, s.adkCreateAs)
	s.face("GET "+sessions+"/{session}", api.ScopeRead, s.adkGet)
	s.face("PATCH "+sessions+"/{session}", api.ScopeRun, s.adkPatch)
	s.face("DELETE "+sessions+"/{session}", api.ScopeAdmin, s.adkDelete)

	s.face("POST /run", api.ScopeRun, reading(s.adkRun))
	s.face(adkStream, api.ScopeRun, reading(s.adkRunSSE))
}

// adkStream is the route that is answered with events.
const adkStream = "POST /run_sse"

// adkAppKey is the key of a thread's metadata that says whose session it is.
const adkAppKey = "adk.app"

type adkAppInfo struct {
	Name        string   `json:"name"`
	Root        string   `json:"rootAgentName"`
	Description string   `json:"description"`
	Language    string   `json:"language"`
	ComputerUse bool     `json:"isComputerUse"`
	Agents      []string `json:"agents"`
}

func adkInfoOf(flow string) adkAppInfo {
	return adkAppInfo{Name: flow, Root: flow, Language: "go", Agents: []string{flow}}
}

func (s *Server) adkApps(w http.ResponseWriter, r *http.Request, c *call) error {
	names := append([]string{}, c.Flows()...)
	if r.URL.Query().Get("detailed") != "true" {
		return send(w, http.StatusOK, names)
	}
	apps := []adkAppInfo{}
	for _, name := range names {
		apps = append(apps, adkInfoOf(name))
	}
	return send(w, http.StatusOK, map[string]any{"apps": apps})
}

func (s *Server) adkVersion(w http.ResponseWriter, _ *http.Request, _ *call) error {
	return send(w, http.StatusOK, map[string]string{"version": s.opts.Version, "language": "go", "language_version": strings.TrimPrefix(runtime.Version(), "go")})
}

func (s *Server) adkHealth(w http.ResponseWriter, _ *http.Request, _ *call) error {
	return send(w, http.StatusOK, api.Health{Status: "ok"})
}

func (s *Server) adkAppInfo(w http.ResponseWriter, r *http.Request, c *call) error {
	if err := c.adkApp(r.PathValue("app")); err != nil {
		return err
	}
	return send(w, http.StatusOK, adkInfoOf(r.PathValue("app")))
}

// adkApp reports an app that is not there.
func (c *call) adkApp(app string) error {
	if !slices.Contains(c.Flows(), app) {
		return fmt.Errorf("%w: there is no app %q", api.ErrNotFound, app)
	}
	return nil
}

// adkSession is a thread as a client sees it.
type adkSession struct {
	ID      string                     `json:"id"`
	App     string                     `json:"appName"`
	User    string                     `json:"userId"`
	State   map[string]json.RawMessage `json:"state"`
	Events  []*adkEvent                `json:"events"`
	Updated float64                    `json:"lastUpdateTime"`
}

// adkThread returns the thread that is a session of a user. That of another one,
// or of another app, is as if it were not there.
func (c *call) adkThread(ctx context.Context, app, user, session string) (*perdure.Thread, error) {
	if err := c.adkApp(app); err != nil {
		return nil, err
	}
	t, err := c.Get(ctx, session)
	if err != nil {
		return nil, err
	}
	if !adkOwns(t, app, user) {
		return nil, fmt.Errorf("%w: the user has no session %q of app %q", perdure.ErrNoThread, session, app)
	}
	return t, nil
}

// adkOwns reports whether a thread is a session of a user and app: it was made
// as one, or the app has worked on it.
func adkOwns(t *perdure.Thread, app, user string) bool {
	if t.User != user || t.Parent != nil {
		return false
	}
	if of, ok := t.Metadata[adkAppKey]; ok {
		return of == app
	}
	return slices.ContainsFunc(t.Runs, func(r *perdure.Run) bool { return r.Flow == app })
}

func (s *Server) adkCreate(w http.ResponseWriter, r *http.Request, c *call) error {
	in, err := s.lenient(w, r)
	if err != nil {
		return err
	}
	var session string
	if err := in.into("sessionId", &session); err != nil {
		return err
	}
	state, err := adkState(in)
	if err != nil {
		return err
	}
	return s.adkMake(w, r, c, session, state)
}

// adkState returns the state that a new session is to have.
func adkState(in members) (state map[string]json.RawMessage, err error) {
	var events []json.RawMessage
	if err := firstError(in.into("state", &state), in.into("events", &events)); err != nil {
		return nil, err
	}
	if len(events) > 0 {
		return nil, fmt.Errorf("%w: a session cannot begin with events; import a thread instead", api.ErrUnsupported)
	}
	return state, nil
}

// adkCreateAs makes a session with an id. Some clients send a request with the
// members state and events, others the state itself.
func (s *Server) adkCreateAs(w http.ResponseWriter, r *http.Request, c *call) error {
	in, err := s.lenient(w, r)
	if err != nil {
		return err
	}
	state := map[string]json.RawMessage(in)
	if holds(in, "state", '{') || holds(in, "events", '[') {
		if state, err = adkState(in); err != nil {
			return err
		}
	}
	return s.adkMake(w, r, c, r.PathValue("session"), state)
}

// holds reports whether a member is null or a value that begins like this.
func holds(in members, name string, begin byte) bool {
	raw := bytes.TrimSpace(in[name])
	return len(raw) > 0 && (raw[0] == begin || string(raw) == "null")
}

// adkMake makes a session.
func (s *Server) adkMake(w http.ResponseWriter, r *http.Request, c *call, session string, state map[string]json.RawMessage) error {
	app, user := r.PathValue("app"), r.PathValue("user")
	if err := c.adkApp(app); err != nil {
		return err
	}
	q := perdure.CreateRequest{Thread: session, User: user, Metadata: map[string]string{adkAppKey: app}, State: map[string]any{},
		By: c.who.Subject, Key: r.Header.Get("Idempotency-Key")}
	for key, value := range state {
		q.State[key] = value
	}
	q.Title, _ = adkTitle(state)
	t, err := c.Create(r.Context(), q)
	if err != nil {
		return err
	}
	out, err := c.adkSession(r.Context(), app, t, false)
	if err != nil {
		return err
	}
	return c.send(w, http.StatusOK, out)
}

// adkShown is the key of a session's state that says what a person calls it. It
// is the title of the thread.
const adkShown = "__session_metadata__"

// adkTitle returns the name of a session in its state, if there is one.
func adkTitle(state map[string]json.RawMessage) (title string, ok bool) {
	var shown struct{ DisplayName *string }
	if json.Unmarshal(state[adkShown], &shown) != nil || shown.DisplayName == nil {
		return "", false
	}
	return *shown.DisplayName, true
}

// adkPatch renames a session.
func (s *Server) adkPatch(w http.ResponseWriter, r *http.Request, c *call) error {
	in, err := s.lenient(w, r)
	if err != nil {
		return err
	}
	delta, err := in.object("stateDelta")
	if err != nil {
		return err
	}
	app := r.PathValue("app")
	t, err := c.adkThread(r.Context(), app, r.PathValue("user"), r.PathValue("session"))
	if err == nil {
		err = c.adkChange(r.Context(), app, t, delta)
	}
	if err == nil {
		t, err = c.Get(r.Context(), t.ID)
	}
	if err != nil {
		return err
	}
	out, err := c.adkSession(r.Context(), app, t, false)
	if err != nil {
		return err
	}
	return c.send(w, http.StatusOK, out)
}

// adkChange changes the state of a session as far as a client may: its name. The
// rest is the flow's; what stays as it is may be repeated.
func (c *call) adkChange(ctx context.Context, app string, t *perdure.Thread, delta members) error {
	if len(delta) == 0 {
		return nil
	}
	now, err := c.adkSession(ctx, app, t, false)
	if err != nil {
		return err
	}
	title, named := adkTitle(delta)
	for key, value := range delta {
		same := c.who.May(api.ScopeRead) && strict.Same(value, now.State[key]) // who may not read learns nothing
		if !(key == adkShown && named) && !same {
			return fmt.Errorf("%w: stateDelta changes %.80q; state is changed by the steps of a flow, and given when a session is created", api.ErrUnsupported, key)
		}
	}
	if !named || title == t.Title {
		return nil
	}
	return c.SetMetadata(ctx, t.ID, &title, nil, c.note("", 0))
}

// adkSession returns a thread as a client sees it, with events if they are
// asked for.
func (c *call) adkSession(ctx context.Context, app string, t *perdure.Thread, events bool) (*adkSession, error) {
	out := &adkSession{ID: t.ID, App: app, User: t.User, State: map[string]json.RawMessage{}, Events: []*adkEvent{}, Updated: float64(t.Updated.UnixMicro()) / 1e6}
	at, err := c.StateAt(ctx, t.ID, 0)
	if err != nil {
		return nil, err
	}
	for key, value := range at.State {
		if !strings.HasPrefix(key, "agent.") { // the agents' own: messages, files, todos
			out.State[key] = value
		}
	}
	if t.Title != "" {
		shown, _ := membersOf(out.State[adkShown])
		if shown == nil {
			shown = members{}
		}
		shown["displayName"], _ = json.Marshal(t.Title)
		out.State[adkShown], _ = json.Marshal(shown)
	}
	if !events {
		return out, nil
	}
	view, size := newADKView(app), 0
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{Replay: true}) {
		if err == nil {
			err = c.adkValue(ctx, &e)
		}
		if err != nil {
			return nil, err
		}
		if size += len(e.Value); size > streamBuffer {
			if err := c.load.hold(size); err != nil {
				return nil, err
			}
			size = 0
		}
		if shown := view.event(e); shown != nil {
			out.Events = append(out.Events, shown)
		}
	}
	return out, nil
}

func (s *Server) adkGet(w http.ResponseWriter, r *http.Request, c *call) error {
	t, err := c.adkThread(r.Context(), r.PathValue("app"), r.PathValue("user"), r.PathValue("session"))
	if err != nil {
		return err
	}
	out, err := c.adkSession(r.Context(), r.PathValue("app"), t, true)
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, out)
}

// maxSessions is how many sessions a list shows: the newest.
const maxSessions = 1000

func (s *Server) adkSessions(w http.ResponseWriter, r *http.Request, c *call) error {
	app, user := r.PathValue("app"), r.PathValue("user")
	if err := c.adkApp(app); err != nil {
		return err
	}
	var ids []string
	for sum, err := range c.List(r.Context(), perdure.ListOptions{User: user}) {
		if errors.Is(err, perdure.ErrCorrupt) {
			break
		}
		if err != nil {
			return err
		}
		if sum.Parent == "" {
			ids = append(ids, sum.ID)
		}
		if len(ids) == 2*maxSessions {
			ids = append(ids[:0], ids[maxSessions:]...)
		}
	}
	out := []*adkSession{}
	for _, id := range ids[max(0, len(ids)-maxSessions):] {
		t, err := c.Get(r.Context(), id)
		if err == nil && !adkOwns(t, app, user) {
			continue
		}
		var session *adkSession
		if err == nil {
			session, err = c.adkSession(r.Context(), app, t, false)
		}
		switch {
		case gone(err): // meanwhile
		case err != nil:
			return err
		default:
			out = append(out, session)
		}
	}
	return send(w, http.StatusOK, out)
}

func (s *Server) adkDelete(w http.ResponseWriter, r *http.Request, c *call) error {
	t, err := c.adkThread(r.Context(), r.PathValue("app"), r.PathValue("user"), r.PathValue("session"))
	if err != nil {
		return err
	}
	if err := c.Erase(r.Context(), t.ID, perdure.EraseOptions{Note: perdure.Note{By: c.who.Subject}}); err != nil {
		return err
	}
	return send(w, http.StatusOK, nil)
}
