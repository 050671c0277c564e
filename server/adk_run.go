package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
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
	delta     members // changes of the session's state
	last      *uint64 // Last-Event-ID
	tag       string  // of the life that it is in
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
	if err := firstError(in.into("appName", &q.app), in.into("userId", &q.user), in.into("sessionId", &q.session),
		in.into("invocationId", &q.invocation), in.into("streaming", &q.streaming)); err != nil {
		return nil, err
	}
	for _, missing := range []struct{ name, value string }{{"appName", q.app}, {"userId", q.user}, {"sessionId", q.session}} {
		if missing.value == "" {
			return nil, fmt.Errorf("%w: the member %s is missing", api.ErrBody, missing.name)
		}
	}
	if q.delta, err = in.object("stateDelta"); err != nil {
		return nil, err
	}
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		id, tag, _, err := api.EventID(text).Parse()
		if err != nil {
			return nil, fmt.Errorf("Last-Event-ID: %w", err)
		}
		q.last, q.tag = &id, tag
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

// maxParts bounds the parts of a message.
const maxParts = 1000

// read reads a new message.
func (q *adkRequest) read(message members) error {
	role := "user"
	var parts []json.RawMessage
	if err := firstError(message.into("role", &role), message.into("parts", &parts)); err != nil {
		return err
	}
	if role != "user" && role != "" {
		return api.Invalid("newMessage: its role is %.40q, and has to be user", role)
	}
	if len(parts) == 0 || len(parts) > maxParts {
		return api.Invalid("newMessage: it has %d parts, and may have 1 to %d", len(parts), maxParts)
	}
	q.message = true
	var given []llm.Part
	var texts []string
	for i, raw := range parts {
		part, ok := membersOf(raw)
		if !ok {
			return fmt.Errorf("%w: part %d of newMessage has to be an object", api.ErrBody, i)
		}
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

func (s *Server) adkRun(w http.ResponseWriter, r *http.Request, c *call) error {
	leave, err := s.admitStream(c) // it is open as long as one
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
		watch := c.watch()
		defer watch.Stop()
		for {
			select {
			case <-watch.C: // it lasts as long as a stream may
				if err := watch.recheck(ctx); err != nil {
					cancel(err)
					return
				}
			case <-s.stop:
				cancel(api.ErrStopping)
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	events := []*adkEvent{}
	err = c.adkFollow(ctx, turn, func(_ perdure.Event, e *adkEvent) bool {
		if e != nil {
			events = append(events, e)
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // why it was cut off, rather than that it was
	}
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, events)
}
