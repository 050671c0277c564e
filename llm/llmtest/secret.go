package llmtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// hidden stands where a secret was.
const hidden = "[secret]"

// secretHeaders hold keys, or say whose account it is.
var secretHeaders = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key",
	"Cookie", "Set-Cookie", "Openai-Organization", "Openai-Project", "Anthropic-Organization-Id", "X-Goog-User-Project",
}

// known matches keys and accounts of providers, which may come back in the text of
// an error.
var known = regexp.MustCompile(`\b(sk-[A-Za-z0-9_-]{16,}|org-[A-Za-z0-9]{16,}|proj_[A-Za-z0-9]{16,}|projects/[0-9]{6,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|gsk_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{16,})`)

// secrets collects what must not be written.
type secrets struct {
	mu   sync.Mutex
	list []string // in all forms that they may have in a file, longest first
}

func newSecrets(given []string) *secrets {
	s := &secrets{}
	for _, v := range given {
		s.add(v)
	}
	return s
}

// add adds a secret. One of less than 6 bytes is ignored: it would be found
// everywhere.
func (s *secrets) add(v string) {
	if len(v) < 6 {
		return
	}
	quoted, _ := plainJSON(v, "")
	html, _ := json.Marshal(v)
	forms := []string{
		v, url.QueryEscape(v), url.PathEscape(v), strings.Trim(string(quoted), `"`), strings.Trim(string(html), `"`),
		base64.RawStdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range forms {
		if !slices.Contains(s.list, f) {
			s.list = append(s.list, f)
		}
	}
	slices.SortStableFunc(s.list, func(a, b string) int { return len(b) - len(a) })
}

// learn adds the secrets in headers and in a query.
func (s *secrets) learn(h http.Header, query url.Values) {
	for _, name := range secretHeaders {
		for _, v := range h.Values(name) {
			s.add(v)
			switch name {
			case "Authorization", "Proxy-Authorization":
				_, key, _ := strings.Cut(v, " ") // Bearer is no secret
				s.add(strings.TrimSpace(key))
			case "Cookie":
				cookies, _ := http.ParseCookie(v)
				for _, c := range cookies {
					s.add(c.Value)
				}
			case "Set-Cookie":
				if c, err := http.ParseSetCookie(v); err == nil {
					s.add(c.Value)
				}
			}
		}
	}
	for name, values := range query {
		if strings.EqualFold(name, "key") || strings.EqualFold(name, "api_key") {
			for _, v := range values {
				s.add(v)
			}
		}
	}
}

// clean returns a text without the secrets.
func (s *secrets) clean(text string) string {
	out, _ := s.cleanCut(text, nil)
	return out
}

// cleanCut returns a text without the secrets, and where its cuts are then. A cut
// inside a secret moves to its end.
func (s *secrets) cleanCut(text string, cuts []int) (string, []int) {
	spans := s.find(text)
	if len(spans) == 0 {
		return text, cuts
	}
	var b strings.Builder
	moved := make([]int, 0, len(cuts))
	from, next := 0, 0
	// keep writes the text up to end, with the cuts in it.
	keep := func(end int) {
		for ; next < len(cuts) && cuts[next] <= end; next++ {
			moved = append(moved, b.Len()+cuts[next]-from)
		}
		b.WriteString(text[from:end])
		from = end
	}
	for _, span := range spans {
		keep(span[0])
		b.WriteString(hidden)
		from = span[1]
		for ; next < len(cuts) && cuts[next] <= from; next++ {
			moved = append(moved, b.Len())
		}
	}
	keep(len(text))
	return b.String(), moved
}

// find returns where the secrets are, in order and joined where they overlap.
func (s *secrets) find(text string) [][2]int {
	var spans [][2]int
	s.mu.Lock()
	list := slices.Clone(s.list)
	s.mu.Unlock()
	for _, secret := range list {
		for at := 0; ; {
			i := strings.Index(text[at:], secret)
			if i < 0 {
				break
			}
			spans = append(spans, [2]int{at + i, at + i + len(secret)})
			at += i + 1
		}
	}
	for _, m := range known.FindAllStringIndex(text, -1) {
		spans = append(spans, [2]int{m[0], m[1]})
	}
	slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
	joined := spans[:0]
	for _, span := range spans {
		if n := len(joined); n > 0 && span[0] < joined[n-1][1] {
			joined[n-1][1] = max(joined[n-1][1], span[1])
			continue
		}
		joined = append(joined, span)
	}
	return joined
}
