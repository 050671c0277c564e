package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
)

// handle binds an operation to a function from its input to its output.
func handle[In, Out any](s *Server, op api.Op[In, Out], fn func(context.Context, *Call, *In) (*Out, error)) {
	raw(s, op, func(w http.ResponseWriter, r *http.Request, c *Call, in *In) error {
		out, err := fn(r.Context(), c, in)
		if err != nil {
			return err
		}
		switch out := any(out).(type) {
		case *perdure.Run:
			c.About(out.Thread)
		case *perdure.AskInfo:
			c.About(out.Thread)
		case *perdure.Thread:
			c.About(out.ID)
		case *perdure.Fork:
			c.About(out.Thread)
		}
		if op.Out == nil {
			w.WriteHeader(op.Status)
			return nil
		}
		return c.sendOrReceipt(w, op.Status, out)
	})
}

// raw binds an operation to a function that writes the response itself. An error
// that it returns before it has written anything is sent as a problem.
func raw[In, Out any](s *Server, op api.Op[In, Out], fn func(http.ResponseWriter, *http.Request, *Call, *In) error) {
	s.bound[op.Name] = true
	if _, known := receipt(new(Out)); !known && op.Out != nil && (op.Scope == api.ScopeRun || op.Scope == api.ScopeAnswer) {
		panic("server: nothing says what " + op.Name + " tells those who may not read")
	}
	fields := op.Fields()
	s.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(w, r, &op.Info)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		in := new(In)
		if err := c.bind(w, r, &op.Info, fields, reflect.ValueOf(in).Elem()); err != nil {
			s.fail(w, r, err)
			return
		}
		if err = fn(w, r, c, in); err != nil {
			s.fail(w, r, err)
		}
	})
}

// fail sends an error as a problem.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	tell(w, s.problem(r, err), nil)
}

// problem returns an error as a problem for the caller, and logs it if it is not
// the caller's fault.
func (s *Server) problem(r *http.Request, err error) *api.Problem {
	p := api.ProblemOf(err)
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p = api.ReadProblemOf(err)
	}
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil && !threads.Behind(s.rt).All.Logged(err) {
		s.opts.Logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return p
}

// tell writes a problem, or the body given in its place.
func tell(w http.ResponseWriter, p *api.Problem, body []byte) {
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	switch {
	case p.Kind() == "quota":
		if p.Retry > 0 { // otherwise it does not help to wait
			w.Header().Set("Retry-After", strconv.FormatInt(p.Retry, 10))
		}
	case p.Status == http.StatusTooManyRequests, p.Status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case p.Status == http.StatusInsufficientStorage: // somebody has to make room
		w.Header().Set("Retry-After", "10")
	}
	if body == nil {
		data, _ := json.Marshal(p)
		body = append(data, '\n')
		w.Header().Set("Content-Type", api.TypeProblem)
	}
	w.WriteHeader(p.Status)
	w.Write(body)
}

// conditions are headers that must not be ignored: a write without its condition
// is a different write.
var conditions = []string{"If-Match", "If-None-Match", "Idempotency-Key"}

// bind reads the input of an operation from a request, and refuses one that names
// another user than the caller may.
func (c *Call) bind(w http.ResponseWriter, r *http.Request, op *api.Info, fields []api.Field, in reflect.Value) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return api.Invalid("the query: %v", err)
	}
	known := map[string]bool{}
	var life *string // of the thread, as If-Match has it
	for _, f := range fields {
		var texts []string
		switch f.Where {
		case api.InBody:
			continue
		case api.InPath:
			if name, rest := strings.CutSuffix(f.Key, "..."); rest {
				texts, err = segments(r, op, name)
				if err != nil {
					return err
				}
				break
			}
			texts = []string{r.PathValue(f.Key)}
		case api.InQuery:
			known[f.Key] = true
			texts = query[f.Key]
			if !utf8.ValidString(strings.Join(texts, "")) {
				return api.Invalid("query %s: it is not UTF-8", f.Key)
			}
		case api.InHeader:
			texts = r.Header.Values(f.Key)
			if f.Key == "If-Match" || f.Key == "If-None-Match" {
				for i := range texts {
					texts[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(texts[i]), "W/"), `"`)
				}
			}
			if f.Key == "If-Match" && len(texts) == 1 && in.FieldByIndex(f.Index).Kind() == reflect.Uint64 {
				life = new(string)
				if texts[0], *life, err = cutLife(texts[0]); err != nil {
					return api.Invalid("header %s: %v", f.Key, err)
				}
			}
		}
		if err := f.Set(in, texts); err != nil {
			return api.Invalid("%s %s: %v", f.Where, strings.TrimSuffix(f.Key, "..."), err)
		}
		if len(texts) > 0 && slices.Contains(conditions, f.Key) && in.FieldByIndex(f.Index).IsZero() {
			return api.Invalid("header %s: it is empty; give a value or omit it", f.Key)
		}
	}
	for _, name := range conditions {
		taken := slices.ContainsFunc(fields, func(f api.Field) bool { return f.Where == api.InHeader && f.Key == name })
		if name == "Idempotency-Key" && op.Status != http.StatusCreated && op.Status != http.StatusAccepted {
			continue // twice is once there
		}
		if op.Method != http.MethodGet && !taken && len(r.Header.Values(name)) > 0 {
			return api.Invalid("header %s: %s does not support this condition", name, op.Name)
		}
	}
	for name := range query {
		if !known[name] {
			return api.Invalid("there is no query parameter %q", name)
		}
	}
	if op.HasBody() {
		if err := c.decodeBody(w, r, fields, in); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if f.Name == "User" && err == nil {
			err = c.names(in.FieldByIndex(f.Index).String())
		}
	}
	if err == nil && life != nil {
		err = c.checkLife(r.Context(), in, *life)
	}
	return err
}

// segments returns the value of a path's last parameter, split at slashes before
// it is unescaped.
func segments(r *http.Request, op *api.Info, name string) ([]string, error) {
	prefix, _, _ := strings.Cut(op.Path, "{"+name)
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix)
	if !ok {
		return nil, api.Invalid("the path %s", r.URL.EscapedPath())
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, api.Invalid("the path: %v", err)
		}
		if text == noSegment {
			text = ""
		}
		parts[i] = text
	}
	return parts, nil
}

// decodeBody decodes a JSON body, which may be absent if no member is required.
func (c *Call) decodeBody(w http.ResponseWriter, r *http.Request, fields []api.Field, in reflect.Value) error {
	data, err := c.Body(w, r)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		data = []byte("{}")
	}
	var given []string
	err = decodeStrict(data, func(r *strict.Reader) error {
		if r.Kind() != '{' {
			return errors.New("it must be a JSON object")
		}
		var err error
		given, err = decodeObject(r, fields, in)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrBody, err)
	}
	for _, f := range fields {
		if f.Where == api.InBody && !slices.Contains(given, f.Key) && !strings.Contains(f.Tag.Get("json"), ",omit") {
			return fmt.Errorf("%w: the member %q is missing", api.ErrBody, f.Key)
		}
	}
	return nil
}

// checkMedia refuses a body whose media type is not accepted.
func checkMedia(r *http.Request, taken ...string) error {
	if err := checkEncoding(r); err != nil {
		return err
	}
	given := r.Header.Values("Content-Type")
	if len(given) == 0 || len(given) == 1 && given[0] == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given[0])
	if err != nil || len(given) > 1 || !slices.Contains(taken, media) {
		return fmt.Errorf("%w: %.80q; send %s", api.ErrMedia, given, taken[0])
	}
	if set, ok := params["charset"]; ok && !strings.EqualFold(set, "utf-8") {
		return fmt.Errorf("%w: its charset is %.40q; use utf-8", api.ErrMedia, set)
	}
	return nil
}

// checkEncoding refuses a body that is compressed or otherwise encoded.
func checkEncoding(r *http.Request) error {
	if packed := r.Header.Values("Content-Encoding"); len(packed) > 0 && !(len(packed) == 1 && strings.EqualFold(packed[0], "identity")) {
		return fmt.Errorf("%w: its encoding is %.40q; send it unencoded", api.ErrMedia, packed)
	}
	return nil
}

// Body returns the JSON body of a request, within the limits of the server.
func (c *Call) Body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkMedia(r, api.TypeJSON); err != nil {
		return nil, err
	}
	most := c.s.opts.MaxBody
	if c.Who == nobody {
		most = min(most, strangerBytes)
		if b, ok := r.Body.(*body); ok {
			b.hurry(strangerTime)
		}
	}
	body := &weighed{Reader: http.MaxBytesReader(w, r.Body, most), load: c.load}
	data, err := io.ReadAll(body)
	switch {
	case body.err != nil:
		return nil, body.err
	case err != nil:
		return nil, badBody(err)
	case c.load != nil:
		err = c.load.Value(r.Context(), 0) // a large one waits for its turn
	}
	return data, err
}

// badBody returns the problem with a body that cannot be read.
func badBody(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("%w: over %d bytes", api.ErrBodyTooLarge, large.Limit)
	}
	return fmt.Errorf("%w: %v", api.ErrBody, err)
}

// weighed is a body whose bytes count against the limits.
type weighed struct {
	io.Reader
	load *load
	err  error // why reading stopped
}

// Read implements io.Reader.
func (b *weighed) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.err = b.load.body(n); b.err != nil {
		err = b.err
	}
	return n, err
}

// maxItems bounds the lists of objects in a body: an element can be as short as
// three bytes there, and takes much more memory here.
const maxItems = 50_000

// typeFields caches the fields of types, since finding them takes longer than
// decoding them.
var typeFields sync.Map // from reflect.Type to []api.Field

func fieldsOf(t reflect.Type) []api.Field {
	if fields, ok := typeFields.Load(t); ok {
		return fields.([]api.Field)
	}
	fields := (&api.Info{In: t}).Fields()
	typeFields.Store(t, fields)
	return fields
}

// decodeStrict decodes a whole text, in which every object has only members of
// its type, spelled exactly.
func decodeStrict(data []byte, decode func(*strict.Reader) error) error {
	r, err := strict.NewReader(data)
	if err == nil {
		err = decode(r)
	}
	if err == nil {
		err = r.End()
	}
	return err
}

var filterType = reflect.TypeFor[perdure.ListOptions]()

// decodeObject decodes an object, and returns the names of its members.
func decodeObject(r *strict.Reader, fields []api.Field, v reflect.Value) (given []string, err error) {
	err = r.Object(func(name string) error {
		i := slices.IndexFunc(fields, func(f api.Field) bool { return f.Where == api.InBody && f.Key == name })
		if i < 0 {
			return fmt.Errorf("there is no member %q", name)
		}
		given = append(given, name)
		to := v.FieldByIndex(fields[i].Index)
		if err := decodeValue(r, to); err != nil {
			return fmt.Errorf("the member %q: %w", name, err)
		}
		if v.Type() == filterType && to.Kind() == reflect.String && to.Len() == 0 { // it would select more than was meant
			return fmt.Errorf("the member %q: it is empty; leave it out, or give it a value", name)
		}
		return nil
	})
	return given, err
}

// decodeValue decodes the next value by the type of v. Raw JSON is parsed only
// once.
func decodeValue(r *strict.Reader, v reflect.Value) error {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && r.Kind() != 'n':
		v.SetLen(0)
		return r.List(func(i int) error {
			if i == maxItems {
				return fmt.Errorf("it has more than %d elements", maxItems)
			}
			v.Set(reflect.Append(v, reflect.Zero(t.Elem())))
			if err := decodeValue(r, v.Index(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
			return nil
		})
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		_, err := decodeObject(r, fieldsOf(t), v)
		return err
	}
	raw, err := r.Raw()
	if err != nil {
		return err
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(raw)
		return nil
	}
	err = json.Unmarshal(raw, v.Addr().Interface())
	if at, ok := v.Interface().(time.Time); ok && err == nil && at.IsZero() && string(raw) != "null" {
		return api.ErrNoTime
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("it is a %s, but has to be a %s", wrong.Value, wrong.Type)
	}
	return err
}
