package adk

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/internal/foreign"
)

// runRequest is a request to /run or /run_sse.
type runRequest struct {
	app, user, session, invocation string

	message   bool       // there is a new one
	input     any        // of it, for a run
	responses []received // of it, for asks
	streaming bool
	delta     foreign.Object // changes of the session's state
	last      *uint64        // Last-Event-ID
	tag       string         // of the life that it is in
	key       string
}

// received is the response to a function call: the answer to an ask.
type received struct {
	id, name string
	response json.RawMessage
}

// runRequest reads a request.
func readRequest(w http.ResponseWriter, r *http.Request, c *server.Call) (*runRequest, error) {
	in, err := foreign.Read(w, r, c)
	if err != nil {
		return nil, err
	}
	q := &runRequest{key: r.Header.Get("Idempotency-Key")}
	if err := cmp.Or(in.Decode("appName", &q.app), in.Decode("userId", &q.user), in.Decode("sessionId", &q.session),
		in.Decode("invocationId", &q.invocation), in.Decode("streaming", &q.streaming)); err != nil {
		return nil, err
	}
	for _, missing := range []struct{ name, value string }{{"appName", q.app}, {"userId", q.user}, {"sessionId", q.session}} {
		if missing.value == "" {
			return nil, fmt.Errorf("%w: the member %s is missing", api.ErrBody, missing.name)
		}
	}
	if q.delta, err = in.Object("stateDelta"); err != nil {
		return nil, err
	}
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		id, tag, _, err := api.EventID(text).Parse()
		if err != nil {
			return nil, fmt.Errorf("Last-Event-ID: %w", err)
		}
		q.last, q.tag = &id, tag
	}
	message, err := in.Object("newMessage")
	if err != nil {
		return nil, err
	}
	if message != nil {
		if err := q.readMessage(message); err != nil {
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

// readMessage reads a new message.
func (q *runRequest) readMessage(message foreign.Object) error {
	role := "user"
	var parts []json.RawMessage
	if err := cmp.Or(message.Decode("role", &role), message.Decode("parts", &parts)); err != nil {
		return err
	}
	if role != "user" && role != "" {
		return api.Invalid("newMessage: its role is %.40q and must be user", role)
	}
	if len(parts) == 0 || len(parts) > maxParts {
		return api.Invalid("newMessage: it has %d parts and may have 1 to %d", len(parts), maxParts)
	}
	q.message = true
	var given []llm.Part
	var texts []string
	for i, raw := range parts {
		part, ok := foreign.ParseObject(raw)
		if !ok {
			return fmt.Errorf("%w: part %d of newMessage must be an object", api.ErrBody, i)
		}
		p, response, err := readPart(part)
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
		q.input = strings.Join(texts, "\n") // flows that are not agents accept it too
	default:
		q.input = given
	}
	return nil
}

// readPart reads a part of a message, or the response that it is.
func readPart(part foreign.Object) (p llm.Part, response *received, err error) {
	read := func(name string) foreign.Object {
		var o foreign.Object
		if err == nil {
			o, err = part.Object(name)
		}
		return o
	}
	data, file, answer := read("inlineData"), read("fileData"), read("functionResponse")
	text, textErr := part.Get("text")
	if err = cmp.Or(err, textErr); err != nil {
		return p, nil, err
	}
	switch {
	case answer != nil:
		response = new(received)
		if err = cmp.Or(answer.Decode("id", &response.id), answer.Decode("name", &response.name)); err == nil {
			response.response, err = answer.Get("response")
		}
		if err == nil && response.id == "" {
			err = fmt.Errorf("%w: the response has no id", api.ErrBody)
		}
		return p, response, err
	case data != nil:
		p.Media = new(llm.Media)
		var encoded string
		if err = cmp.Or(data.Decode("mimeType", &p.Media.MIME), data.Decode("displayName", &p.Media.Name), data.Decode("data", &encoded)); err != nil {
			return p, nil, err
		}
		p.Media.Data, err = decodeBase64(encoded)
		return p, nil, err
	case file != nil:
		p.Media = new(llm.Media)
		err = cmp.Or(file.Decode("mimeType", &p.Media.MIME), file.Decode("displayName", &p.Media.Name), file.Decode("fileUri", &p.Media.URL))
		if err == nil && p.Media.URL == "" {
			err = fmt.Errorf("%w: fileData has no fileUri", api.ErrBody)
		}
		return p, nil, err
	case text != nil:
		err = part.Decode("text", &p.Text)
		return p, nil, err
	}
	return p, nil, fmt.Errorf("%w: a part must have text, inlineData, fileData or functionResponse", api.ErrUnsupported)
}

// decodeBase64 decodes bytes in either alphabet, padded or not.
func decodeBase64(text string) ([]byte, error) {
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
