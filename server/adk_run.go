package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/llm"
)

// adkRequest is what /run and /run_sse are asked.
type adkRequest struct {
	app, user, session, invocation string

	message   bool          // there is a new one
	input     any           // of it, for a run
	responses []adkReceived // of it, for asks
	streaming bool
	last      *uint64 // Last-Event-ID
	key       string
}

// adkReceived is the response to the call of a function: the answer of an ask.
type adkReceived struct {
	id, name string
	response json.RawMessage
}

// adkRequest reads a request.
func (s *Server) adkRequest(w http.ResponseWriter, r *http.Request) (*adkRequest, error) {
	in, err := s.lenient(w, r)
	if err != nil {
		return nil, err
	}
	q := &adkRequest{key: r.Header.Get("Idempotency-Key")}
	var delta map[string]json.RawMessage
	if err := firstError(in.into("appName", &q.app), in.into("userId", &q.user), in.into("sessionId", &q.session),
		in.into("invocationId", &q.invocation), in.into("streaming", &q.streaming), in.into("stateDelta", &delta)); err != nil {
		return nil, err
	}
	for _, missing := range []struct{ name, value string }{{"appName", q.app}, {"userId", q.user}, {"sessionId", q.session}} {
		if missing.value == "" {
			return nil, fmt.Errorf("%w: the member %s is missing", api.ErrBody, missing.name)
		}
	}
	if len(delta) > 0 {
		return nil, fmt.Errorf("%w: stateDelta; state is changed by the steps of a flow, and given when a session is created", api.ErrUnsupported)
	}
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, api.Invalid("Last-Event-ID: %.40q is no id of an event", text)
		}
		q.last = &id
	}
	message, err := in.object("newMessage")
	if err != nil {
		return nil, err
	}
	if message != nil {
		if err := q.read(message); err != nil {
			return nil, err
		}
	}
	switch {
	case !q.message && q.invocation == "" && q.last == nil:
		return nil, api.Invalid("there is neither newMessage nor invocationId: nothing to run and nothing to resume")
	case q.input != nil && q.invocation != "" && q.last == nil:
		return nil, fmt.Errorf("%w: a message for an invocation that exists; leave invocationId out to start another", api.ErrUnsupported)
	}
	return q, nil
}

// read reads a new message.
func (q *adkRequest) read(message members) error {
	role := "user"
	var parts []members
	if err := firstError(message.into("role", &role), message.into("parts", &parts)); err != nil {
		return err
	}
	if role != "user" && role != "" {
		return api.Invalid("newMessage: its role is %.40q, and has to be user", role)
	}
	if len(parts) == 0 {
		return api.Invalid("newMessage: it has no parts")
	}
	q.message = true
	var given []llm.Part
	var texts []string
	for i, part := range parts {
		p, response, err := adkPartOf(part)
		switch {
		case err != nil:
			return fmt.Errorf("part %d of newMessage: %w", i, err)
		case response != nil:
			q.responses = append(q.responses, *response)
		default:
			given = append(given, p)
			if p.Media == nil {
				texts = append(texts, p.Text)
			}
		}
	}
	switch {
	case len(q.responses) > 0 && len(given) > 0:
		return fmt.Errorf("%w: a message that both responds to calls and says something new; send two", api.ErrUnsupported)
	case len(q.responses) > 0:
	case len(texts) == len(given):
		q.input = strings.Join(texts, "\n") // flows that are no agents take it too
	default:
		q.input = given
	}
	return nil
}

// adkPartOf reads a part of a message, or the response that it is.
func adkPartOf(part members) (p llm.Part, response *adkReceived, err error) {
	read := func(name string) members {
		var o members
		if err == nil {
			o, err = part.object(name)
		}
		return o
	}
	data, file, answer := read("inlineData"), read("fileData"), read("functionResponse")
	text, textErr := part.get("text")
	if err = firstError(err, textErr); err != nil {
		return p, nil, err
	}
	switch {
	case answer != nil:
		response = new(adkReceived)
		if err = firstError(answer.into("id", &response.id), answer.into("name", &response.name)); err == nil {
			response.response, err = answer.get("response")
		}
		if err == nil && response.id == "" {
			err = fmt.Errorf("%w: the response has no id", api.ErrBody)
		}
		return p, response, err
	case data != nil:
		p.Media = new(llm.Media)
		var encoded string
		if err = firstError(data.into("mimeType", &p.Media.MIME), data.into("displayName", &p.Media.Name), data.into("data", &encoded)); err != nil {
			return p, nil, err
		}
		p.Media.Data, err = unbase64(encoded)
		return p, nil, err
	case file != nil:
		p.Media = new(llm.Media)
		err = firstError(file.into("mimeType", &p.Media.MIME), file.into("displayName", &p.Media.Name), file.into("fileUri", &p.Media.URL))
		if err == nil && p.Media.URL == "" {
			err = fmt.Errorf("%w: fileData has no fileUri", api.ErrBody)
		}
		return p, nil, err
	case text != nil:
		err = part.into("text", &p.Text)
		return p, nil, err
	}
	return p, nil, fmt.Errorf("%w: parts with text, inlineData, fileData and functionResponse are taken", api.ErrUnsupported)
}

// unbase64 decodes bytes in either alphabet, padded or not.
func unbase64(text string) ([]byte, error) {
	text = strings.TrimRight(text, "=")
	enc := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		enc = base64.RawURLEncoding
	}
	data, err := enc.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: inlineData: %v", api.ErrBody, err)
	}
	return data, nil
}

// adkTurn is the part of a run that a request is answered with.
type adkTurn struct {
	app       string
	run       *perdure.Run
	after     uint64          // events up to this one are left out
	asks      map[string]bool // but for those of these asks
	streaming bool
}

// adkBegin does what a request asks for, and returns what it is answered with.
func (c *call) adkBegin(ctx context.Context, q *adkRequest) (*adkTurn, error) {
	t, err := c.adkThread(ctx, q.app, q.user, q.session)
	if err != nil {
		return nil, err
	}
	c.header.Set(traceHeader, t.ID)
	turn := &adkTurn{app: q.app, streaming: q.streaming}
	switch {
	case q.last != nil: // a reconnect starts and answers nothing
		turn.after = *q.last
		turn.run, err = c.adkRunAt(ctx, t, q)
	case len(q.responses) > 0:
		err = c.adkRespond(ctx, t, q, turn)
	case q.message:
		turn.run, err = c.Start(ctx, perdure.StartRequest{Flow: q.app, Input: q.input, Thread: t.ID, Key: q.key, Policy: perdure.Beside, By: c.who.Subject})
	default:
		err = c.adkResume(ctx, t, q, turn)
	}
	return turn, err
}

// adkFind returns the run that is an invocation of a session.
func adkFind(t *perdure.Thread, id string) (*perdure.Run, error) {
	for _, run := range t.Runs {
		if run.ID == id {
			return run, nil
		}
	}
	return nil, fmt.Errorf("%w: session %q has no invocation %.80q", perdure.ErrRunNotFound, t.ID, id)
}

// adkRunAt returns the run whose events a client was reading when it was cut
// off.
func (c *call) adkRunAt(ctx context.Context, t *perdure.Thread, q *adkRequest) (*perdure.Run, error) {
	id := q.invocation
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{After: max(*q.last, 1) - 1, Replay: true}) {
		if err != nil {
			return nil, err
		}
		if id == "" {
			id = e.Run
		}
		break
	}
	if *q.last > t.Seq {
		if now, err := c.Get(ctx, t.ID); err != nil || *q.last > now.Seq {
			return nil, firstError(err, fmt.Errorf("%w: session %q has no event %d", perdure.ErrAhead, t.ID, *q.last))
		}
	}
	if id != "" {
		return adkFind(t, id)
	}
	if len(t.Runs) == 0 {
		return nil, fmt.Errorf("%w: session %q has no invocation", perdure.ErrRunNotFound, t.ID)
	}
	return t.Runs[len(t.Runs)-1], nil
}

// adkResume lets a run go on that was stopped: what was paused goes on, and
// what failed is tried again. One that a crash cut off goes on by itself. The
// client gets what has happened since a worker took it up last, and what it
// waits for.
func (c *call) adkResume(ctx context.Context, t *perdure.Thread, q *adkRequest, turn *adkTurn) error {
	run, err := adkFind(t, q.invocation)
	if err != nil {
		return err
	}
	turn.run = run
	note := perdure.Note{By: c.who.Subject, Reason: "resumed by its invocation id"}
	err = nil
	switch {
	case !run.Paused.IsZero():
		err = c.Resume(ctx, t.ID, run.ID, note)
	case run.Status == perdure.Failed || run.Status == perdure.Blocked || run.Status == perdure.Quarantined:
		err = c.Retry(ctx, t.ID, run.ID, note)
	}
	if err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
		return err
	}
	turn.asks = map[string]bool{}
	for _, ask := range run.Asks {
		turn.asks[ask.ID] = true
	}
	for e, err := range c.Events(ctx, t.ID, perdure.EventOptions{After: run.Seq - 1, Run: run.ID, Replay: true}) {
		if err != nil {
			return err
		}
		if e.Kind == "claimed" || e.Kind == "resumed" || e.Kind == "retried" {
			turn.after = e.Seq
		}
	}
	return nil
}

func (s *Server) adkRun(w http.ResponseWriter, r *http.Request, c *call) error {
	leave, err := s.admitStream() // it is open as long as one
	if err != nil {
		return err
	}
	defer leave()
	q, err := s.adkRequest(w, r)
	if err != nil {
		return err
	}
	turn, err := c.adkBegin(r.Context(), q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-s.stop:
			cancel(api.ErrStopping)
		case <-ctx.Done():
		}
	}()
	events := []*adkEvent{}
	err = c.adkFollow(ctx, turn, func(_ perdure.Event, e *adkEvent) bool {
		if e != nil {
			events = append(events, e)
		}
		return true
	})
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, events)
}
