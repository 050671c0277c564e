package llmtest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// tape is a file of exchanges, in the order in which they began.
type tape struct {
	Exchanges []exchange `json:"exchanges"`
}

// exchange is a request and its answer.
type exchange struct {
	Request  request  `json:"request"`
	Response response `json:"response"`
}

type request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	Body   body   `json:"body"`
}

type response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Chunks []piece     `json:"chunks"`
	Cut    bool        `json:"cut,omitempty"` // the end was not seen
}

// body is the body of a request, as canonical JSON if it is JSON, so that files can
// be read and bodies compared.
type body struct {
	json json.RawMessage
	raw  piece
}

func newBody(data []byte) body {
	if c, ok := canonical(data); ok {
		return body{json: c}
	}
	return body{raw: data}
}

// MarshalJSON writes JSON as it is, and anything else in an object that says so.
func (b body) MarshalJSON() ([]byte, error) {
	if b.json != nil {
		return b.json, nil
	}
	return json.Marshal(map[string]piece{"not-json": b.raw})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *body) UnmarshalJSON(data []byte) error {
	var not map[string]piece
	if err := json.Unmarshal(data, &not); err == nil && len(not) == 1 && not["not-json"] != nil {
		*b = body{raw: not["not-json"]}
		return nil
	}
	c, ok := canonical(data)
	if !ok {
		return fmt.Errorf("a body that is not JSON")
	}
	*b = body{json: c}
	return nil
}

func (b body) key() string {
	if b.json != nil {
		return string(b.json)
	}
	return "\x00" + string(b.raw)
}

// lines returns the body as people compare it.
func (b body) lines() []string {
	var out bytes.Buffer
	if b.json == nil || json.Indent(&out, b.json, "", "  ") != nil {
		return strings.Split(string(b.raw), "\n")
	}
	return strings.Split(out.String(), "\n")
}

// canonical writes JSON with sorted keys and no space. Numbers stay as they
// are.
func canonical(data []byte) (json.RawMessage, bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, false
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, false
	}
	out, err := plainJSON(v, "")
	return out, err == nil
}

// plainJSON encodes without escapes for HTML, which are hard to read.
func plainJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// piece is a piece of a body: a text, or base64 if it is not UTF-8, as when a
// character was cut.
type piece []byte

// MarshalJSON writes a string, or an object with base64.
func (p piece) MarshalJSON() ([]byte, error) {
	if utf8.Valid(p) {
		return plainJSON(string(p), "")
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(p)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *piece) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		*p = append(piece{}, s...)
		return nil
	}
	var b struct {
		Base64 []byte `json:"base64"`
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	*p = append(piece{}, b.Base64...)
	return nil
}

// newRequest returns a request in the form that is written and compared, and its
// body.
func newRequest(r *http.Request, s *secrets) (request, []byte, error) {
	var data []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if data, err = io.ReadAll(r.Body); err != nil {
			return request{}, nil, fmt.Errorf("llmtest: the body of a request: %w", err)
		}
	}
	query := url.Values{}
	for k, v := range r.URL.Query() {
		if !strings.EqualFold(k, "key") && !strings.EqualFold(k, "api_key") {
			query[k] = v
		}
	}
	return request{
		Method: cmp.Or(r.Method, http.MethodGet),
		Path:   s.clean(r.URL.Path),
		Query:  s.clean(query.Encode()),
		Body:   newBody([]byte(s.clean(string(data)))),
	}, data, nil
}
