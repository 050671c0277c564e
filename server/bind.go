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

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
)

// call is one request to an operation, by someone who may make it.
type call struct {
	*perdure.Runtime // of the caller's tenant
	who              *Principal
	header           http.Header // of the answer
	still            func(context.Context) error
}

// handle binds an operation to a function from its input to its output.
func handle[In, Out any](s *Server, op api.Op[In, Out], fn func(context.Context, *call, *In) (*Out, error)) {
	raw(s, op, func(w http.ResponseWriter, r *http.Request, c *call, in *In) error {
		out, err := fn(r.Context(), c, in)
		if err != nil {
			return err
		}
		if op.Out == nil {
			w.WriteHeader(op.Status)
			return nil
		}
		return send(w, op.Status, out)
	})
}

// raw binds an operation to a function that writes the answer itself. An error
// that it returns before it has written anything is told as a problem.
func raw[In, Out any](s *Server, op api.Op[In, Out], fn func(http.ResponseWriter, *http.Request, *call, *In) error) {
	s.bound[op.Name] = true
	fields := op.Fields()
	s.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(w, r, &op.Info)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		in := new(In)
		if err := s.bind(w, r, &op.Info, fields, reflect.ValueOf(in).Elem()); err != nil {
			s.fail(w, r, err)
			return
		}
		if err := fn(w, r, c, in); err != nil {
			s.fail(w, r, err)
		}
	})
}

// send writes a value as JSON.
func send(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", api.TypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	_, err = w.Write(append(data, '\n'))
	_ = err // the caller is gone
	return nil
}

// fail tells an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := api.ProblemOf(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.opts.Logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	tell(w, p)
}

// tell writes a problem.
func tell(w http.ResponseWriter, p *api.Problem) {
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	data, _ := json.Marshal(p)
	w.Header().Set("Content-Type", api.TypeProblem)
	w.WriteHeader(p.Status)
	w.Write(append(data, '\n'))
}

// conditions are headers that must not be lost silently: without one a write is
// another one.
var conditions = []string{"If-Match", "If-None-Match", "Idempotency-Key"}

// bind reads the input of an operation from a request.
func (s *Server) bind(w http.ResponseWriter, r *http.Request, op *api.Info, fields []api.Field, in reflect.Value) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return api.Invalid("the query: %v", err)
	}
	known := map[string]bool{}
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
		case api.InHeader:
			texts = r.Header.Values(f.Key)
			if f.Key == "If-Match" || f.Key == "If-None-Match" {
				for i := range texts {
					texts[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(texts[i]), "W/"), `"`)
				}
			}
		}
		if err := f.Set(in, texts); err != nil {
			return api.Invalid("%s %s: %v", f.Where, strings.TrimSuffix(f.Key, "..."), err)
		}
		if len(texts) > 0 && slices.Contains(conditions, f.Key) && in.FieldByIndex(f.Index).IsZero() {
			return api.Invalid("header %s: it is empty; leave it out if nothing is meant", f.Key)
		}
	}
	for _, name := range conditions[:2] {
		taken := slices.ContainsFunc(fields, func(f api.Field) bool { return f.Where == api.InHeader && f.Key == name })
		if op.Method != http.MethodGet && !taken && len(r.Header.Values(name)) > 0 {
			return api.Invalid("header %s: %s knows no such condition", name, op.Name)
		}
	}
	for name := range query {
		if !known[name] {
			return api.Invalid("there is no query parameter %q", name)
		}
	}
	if !op.HasBody() {
		return nil
	}
	return s.body(w, r, fields, in)
}

// segments returns what a path has in place of its last parameter, split at
// slashes before it is unescaped.
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

// body decodes a JSON body, which may be missing if no member of it is needed.
func (s *Server) body(w http.ResponseWriter, r *http.Request, fields []api.Field, in reflect.Value) error {
	data, err := s.read(w, r, api.TypeJSON)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		data = []byte("{}")
	}
	if err := strict.Check(data); err != nil {
		return fmt.Errorf("%w: %v", api.ErrBody, err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return fmt.Errorf("%w: it has to be a JSON object", api.ErrBody)
	}
	for name := range members {
		if !slices.ContainsFunc(fields, func(f api.Field) bool { return f.Where == api.InBody && f.Key == name }) {
			return fmt.Errorf("%w: there is no member %q", api.ErrBody, name)
		}
	}
	for _, f := range fields {
		if f.Where != api.InBody {
			continue
		}
		value, there := members[f.Key]
		if !there {
			if !strings.Contains(f.Tag.Get("json"), ",omit") {
				return fmt.Errorf("%w: the member %q is missing", api.ErrBody, f.Key)
			}
			continue
		}
		if err := decode(value, in.FieldByIndex(f.Index)); err != nil {
			return fmt.Errorf("%w: the member %q: %v", api.ErrBody, f.Key, err)
		}
	}
	return nil
}

// read returns the whole body of a request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, media string) ([]byte, error) {
	if given := r.Header.Get("Content-Type"); given != "" {
		if got, _, err := mime.ParseMediaType(given); err != nil || got != media {
			return nil, fmt.Errorf("%w: %q, and %s is taken", api.ErrMedia, given, media)
		}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opts.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, fmt.Errorf("%w: over %d bytes", api.ErrBodyTooLarge, large.Limit)
	case err != nil:
		return nil, fmt.Errorf("%w: %v", api.ErrBody, err)
	}
	return data, nil
}

// maxItems bounds the lists of objects in a body: each element is worth three
// bytes there, and much more work here.
const maxItems = 50_000

// typeFields has the fields of types that were decoded, since finding them takes
// longer than decoding them.
var typeFields sync.Map // from reflect.Type to []api.Field

func fieldsOf(t reflect.Type) []api.Field {
	if fields, ok := typeFields.Load(t); ok {
		return fields.([]api.Field)
	}
	fields := (&api.Info{In: t}).Fields()
	typeFields.Store(t, fields)
	return fields
}

// decode decodes a member. Members of objects inside it are matched exactly,
// as those of the body are.
func decode(data json.RawMessage, v reflect.Value) error {
	t := v.Type()
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return errors.New("it has to be a list")
		}
		if len(items) > maxItems {
			return fmt.Errorf("it has more than %d elements", maxItems)
		}
		list := reflect.MakeSlice(t, len(items), len(items))
		for i, item := range items {
			if err := decode(item, list.Index(i)); err != nil {
				return fmt.Errorf("element %d: %v", i, err)
			}
		}
		v.Set(list)
		return nil
	}
	if t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]() {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil || members == nil {
			return errors.New("it has to be an object")
		}
		fields := fieldsOf(t)
		for name := range members {
			if !slices.ContainsFunc(fields, func(f api.Field) bool { return f.Key == name }) {
				return fmt.Errorf("there is no member %q", name)
			}
		}
		for _, f := range fields {
			if value, there := members[f.Key]; there {
				if err := decode(value, v.FieldByIndex(f.Index)); err != nil {
					return fmt.Errorf("member %q: %v", f.Key, err)
				}
			}
		}
		return nil
	}
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("it is a %s, and has to be a %s", wrong.Value, wrong.Type)
		}
		return err
	}
	return nil
}
