package adk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/internal/foreign"
)

// appKey is the key of a thread's metadata that says whose session it is.
const appKey = "adk.app"

// wireSession is a thread as a client sees it.
type wireSession struct {
	ID      string                     `json:"id"`
	App     string                     `json:"appName"`
	User    string                     `json:"userId"`
	State   map[string]json.RawMessage `json:"state"`
	Events  []*wireEvent               `json:"events"`
	Updated float64                    `json:"lastUpdateTime"`
}

// findSession returns the thread that is a session of a user, with its newest run and
// all that have not ended. A session of another user or app is treated as missing.
func findSession(ctx context.Context, c *server.Call, app, user, session string) (*perdure.Thread, error) {
	if err := checkApp(c, app); err != nil {
		return nil, err
	}
	t, err := c.Runtime.GetPage(ctx, session, perdure.RunPage{Limit: 1})
	if err == nil && t.Earlier > 0 && !ownsSession(t, app, user) {
		t, err = c.Runtime.Get(ctx, session)
	}
	if err != nil {
		return nil, err
	}
	if !ownsSession(t, app, user) {
		return nil, fmt.Errorf("%w: the user has no session %q of app %q", perdure.ErrNoThread, session, app)
	}
	return t, nil
}

// ownsSession reports whether a thread is a session of a user and app: it was
// created as one, or the app has worked on it.
func ownsSession(t *perdure.Thread, app, user string) bool {
	if t.User != user || t.Parent != nil {
		return false
	}
	if of, ok := t.Metadata[appKey]; ok {
		return of == app
	}
	return slices.ContainsFunc(t.Runs, func(r *perdure.Run) bool { return r.Flow == app })
}

func createSession(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	in, err := foreign.Read(w, r, c)
	if err != nil {
		return err
	}
	var session string
	if err := in.Decode("sessionId", &session); err != nil {
		return err
	}
	state, err := initialState(in)
	if err != nil {
		return err
	}
	return makeSession(w, r, c, session, state)
}

// initialState returns the state of a new session.
func initialState(in foreign.Object) (state map[string]json.RawMessage, err error) {
	var events []json.RawMessage
	if err := cmp.Or(in.Decode("state", &state), in.Decode("events", &events)); err != nil {
		return nil, err
	}
	if len(events) > 0 {
		return nil, fmt.Errorf("%w: a session cannot begin with events; import a thread instead", api.ErrUnsupported)
	}
	return state, nil
}

// createSessionAs makes a session with an id. Some clients send a request with the
// members state and events, others the state itself.
func createSessionAs(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	in, err := foreign.Read(w, r, c)
	if err != nil {
		return err
	}
	state := map[string]json.RawMessage(in)
	if holds(in, "state", '{') || holds(in, "events", '[') {
		if state, err = initialState(in); err != nil {
			return err
		}
	}
	return makeSession(w, r, c, r.PathValue("session"), state)
}

// holds reports whether a member is null or a value that begins like this.
func holds(in foreign.Object, name string, begin byte) bool {
	raw := bytes.TrimSpace(in[name])
	return len(raw) > 0 && (raw[0] == begin || string(raw) == "null")
}

// makeSession makes a session.
func makeSession(w http.ResponseWriter, r *http.Request, c *server.Call, session string, state map[string]json.RawMessage) error {
	app, user := r.PathValue("app"), r.PathValue("user")
	if err := checkApp(c, app); err != nil {
		return err
	}
	q := perdure.CreateRequest{Thread: session, User: user, Metadata: map[string]string{appKey: app}, State: map[string]any{},
		By: c.Who.Subject, Key: r.Header.Get("Idempotency-Key")}
	for key, value := range state {
		q.State[key] = value
	}
	q.Title, _ = titleIn(state)
	t, err := c.Runtime.Create(r.Context(), q)
	if err != nil {
		return err
	}
	return sendSession(w, r, c, app, t)
}

// sendSession responds to a write with the session. A caller who may not read
// learns only that the write was done.
func sendSession(w http.ResponseWriter, r *http.Request, c *server.Call, app string, t *perdure.Thread) error {
	out, err := showSession(r.Context(), c, app, t, false)
	if err != nil {
		return err
	}
	if !c.Who.May(api.ScopeRead) {
		out.State = map[string]json.RawMessage{}
	}
	return c.Send(w, http.StatusOK, out)
}

// metadataKey is the key of a session's state that holds its display name, which is
// the title of the thread.
const metadataKey = "__session_metadata__"

// titleIn returns the name of a session in its state, if there is one.
func titleIn(state map[string]json.RawMessage) (title string, ok bool) {
	var shown struct{ DisplayName *string }
	if json.Unmarshal(state[metadataKey], &shown) != nil || shown.DisplayName == nil {
		return "", false
	}
	return *shown.DisplayName, true
}

// patchSession renames a session.
func patchSession(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	in, err := foreign.Read(w, r, c)
	if err != nil {
		return err
	}
	delta, err := in.Object("stateDelta")
	if err != nil {
		return err
	}
	app := r.PathValue("app")
	t, err := findSession(r.Context(), c, app, r.PathValue("user"), r.PathValue("session"))
	if err == nil {
		err = changeState(r.Context(), c, app, t, delta)
	}
	if err == nil {
		t, err = c.Runtime.Get(r.Context(), t.ID)
	}
	if err != nil {
		return err
	}
	return sendSession(w, r, c, app, t)
}

// changeState changes the only part of a session's state that a client may change:
// its name. The rest belongs to the flow; unchanged values may be repeated.
func changeState(ctx context.Context, c *server.Call, app string, t *perdure.Thread, delta foreign.Object) error {
	if len(delta) == 0 {
		return nil
	}
	now, err := showSession(ctx, c, app, t, false)
	if err != nil {
		return err
	}
	title, named := titleIn(delta)
	for key, value := range delta {
		same := c.Who.May(api.ScopeRead) && strict.Same(value, now.State[key]) // who may not read learns nothing
		if !(key == metadataKey && named) && !same {
			return fmt.Errorf("%w: stateDelta changes %.80q; only the steps of a flow change state, and clients set it when they create a session", api.ErrUnsupported, key)
		}
	}
	if !named || title == t.Title {
		return nil
	}
	return c.Runtime.SetMetadata(ctx, t.ID, &title, nil, perdure.Note{By: c.Who.Subject})
}

// holdEvery is how many bytes of events are read before they count.
const holdEvery = 32 << 10

// showSession returns a thread as a client sees it, with events if they are
// asked for.
func showSession(ctx context.Context, c *server.Call, app string, t *perdure.Thread, events bool) (*wireSession, error) {
	out := &wireSession{ID: t.ID, App: app, User: t.User, State: map[string]json.RawMessage{}, Events: []*wireEvent{}, Updated: float64(t.Updated.UnixMicro()) / 1e6}
	at, err := c.Runtime.StateAt(ctx, t.ID, 0)
	if err != nil {
		return nil, err
	}
	for key, value := range at.State {
		if !strings.HasPrefix(key, "agent.") { // the agents' own: messages, files, todos
			out.State[key] = value
		}
	}
	if t.Title != "" {
		shown, _ := foreign.ParseObject(out.State[metadataKey])
		if shown == nil {
			shown = foreign.Object{}
		}
		shown["displayName"], _ = json.Marshal(t.Title)
		out.State[metadataKey], _ = json.Marshal(shown)
	}
	if !events {
		return out, nil
	}
	view, size := newView(app), 0
	for e, err := range c.Runtime.Events(ctx, t.ID, perdure.EventOptions{Replay: true}) {
		if err == nil {
			err = resolveValue(ctx, c, &e)
		}
		if err != nil {
			return nil, err
		}
		if size += len(e.Value); size > holdEvery {
			if err := c.Hold(size); err != nil {
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

func getSession(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	t, err := findSession(r.Context(), c, r.PathValue("app"), r.PathValue("user"), r.PathValue("session"))
	if err != nil {
		return err
	}
	out, err := showSession(r.Context(), c, r.PathValue("app"), t, true)
	if err != nil {
		return err
	}
	return c.Send(w, http.StatusOK, out)
}

// maxSessions is how many sessions a list shows: the newest.
const maxSessions = 1000

func listSessions(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	app, user := r.PathValue("app"), r.PathValue("user")
	if err := checkApp(c, app); err != nil {
		return err
	}
	var ids []string
	for sum, err := range c.Runtime.List(r.Context(), perdure.ListOptions{User: user}) {
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
	out := []*wireSession{}
	for _, id := range ids[max(0, len(ids)-maxSessions):] {
		t, err := c.Runtime.Get(r.Context(), id)
		if err == nil && !ownsSession(t, app, user) {
			continue
		}
		var session *wireSession
		if err == nil {
			session, err = showSession(r.Context(), c, app, t, false)
		}
		switch {
		case foreign.Gone(err): // meanwhile
		case err != nil:
			return err
		default:
			out = append(out, session)
		}
	}
	return c.Send(w, http.StatusOK, out)
}

func deleteSession(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	t, err := findSession(r.Context(), c, r.PathValue("app"), r.PathValue("user"), r.PathValue("session"))
	if err != nil {
		return err
	}
	if err := c.Runtime.Erase(r.Context(), t.ID, perdure.EraseOptions{Note: perdure.Note{By: c.Who.Subject}}); err != nil {
		return err
	}
	return c.Send(w, http.StatusOK, nil)
}
