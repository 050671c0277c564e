package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure/api"
)

// sessions admit a browser by a cookie that holds its token, sealed with a key of
// the store. So every server of the store knows it, nothing is kept, and it is
// worth no more than the token.
type sessions struct {
	name string // of the cookie: servers of other stores may share the host name
	seal cipher.AEAD
}

const (
	sessionTime  = 12 * time.Hour
	sessionMost  = 3900 // bytes of a cookie's value that browsers keep
	securePrefix = "__Host-"
	// consoleHeader shows that a request comes from a script: a form of a foreign
	// page cannot set it.
	consoleHeader = "Perdure-Console"
)

// session is what a cookie holds.
type session struct {
	Token string    `json:"token"`
	Ends  time.Time `json:"ends"`
}

func newSessions(hash func(...string) []byte) sessions {
	block, err := aes.NewCipher(hash("session"))
	if err != nil {
		panic(err) // a hash has the length of a key
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return sessions{name: "perdure_session_" + hex.EncodeToString(hash("session", "name")[:4]), seal: seal}
}

// encode returns the value of a session's cookie.
func (s *sessions) encode(v session) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, s.seal.NonceSize())
	rand.Read(nonce)
	text := base64.RawURLEncoding.EncodeToString(s.seal.Seal(nonce, nonce, data, []byte(s.name)))
	if len(text) > sessionMost {
		return "", api.Invalid("the token has %d bytes, too many for a cookie", len(v.Token))
	}
	return text, nil
}

// decode returns the session of a cookie's value, if it has not ended.
func (s *sessions) decode(text string) (session, bool) {
	var v session
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) < s.seal.NonceSize() {
		return v, false
	}
	data, err = s.seal.Open(nil, data[:s.seal.NonceSize()], data[s.seal.NonceSize():], []byte(s.name))
	if err != nil || json.Unmarshal(data, &v) != nil {
		return v, false
	}
	return v, time.Now().Before(v.Ends)
}

// secured reports whether the browser uses HTTPS. Of several proxies, the first is
// the one that the browser talks to.
func secured(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

func (s *sessions) cookie(r *http.Request, value string, age int) *http.Cookie {
	c := &http.Cookie{Name: s.name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secured(r)}
	if c.Secure {
		c.Name = securePrefix + c.Name // no other host of the domain can set it
	}
	return c
}

// fromRequest returns the session of a request. A page of another origin has none, and a
// script has to say that it writes.
func (s *sessions) fromRequest(r *http.Request) (session, error) {
	cookies := r.CookiesNamed(s.cookie(r, "", 0).Name)
	if len(cookies) == 0 || !ownPage(r) {
		return session{}, api.ErrUnauthorized
	}
	for _, c := range cookies[:min(len(cookies), 4)] {
		if v, ok := s.decode(c.Value); ok {
			if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(consoleHeader) != "1" {
				return session{}, fmt.Errorf("%w: with a session, changes need the header %s: 1", api.ErrUnauthorized, consoleHeader)
			}
			return v, nil
		}
	}
	return session{}, fmt.Errorf("%w: the session has ended; log in again", api.ErrUnauthorized)
}

// who returns how to look up whoever the token of a session stands for.
func (v session) who(auth Authenticator) who {
	return func(ctx context.Context) (*Principal, error) {
		p, err := vet(auth.Authenticate(ctx, v.Token))
		if err != nil {
			return nil, err
		}
		return vet(v.bound(p), nil)
	}
}

// bound returns a principal that ends with the session at the latest.
func (v session) bound(p *Principal) *Principal {
	short := *p
	if short.Expires.IsZero() || v.Ends.Before(short.Expires) {
		short.Expires = v.Ends
	}
	return &short
}

// token returns the token that a request was made with, in a header or a session;
// "" if there is none.
func (s *Server) token(r *http.Request) string {
	if token, given, err := bearer(r); given {
		if err != nil {
			return ""
		}
		return token
	}
	v, err := s.sessions.fromRequest(r)
	if err != nil {
		return ""
	}
	return v.Token
}

// letIn asks Options.Local about a request, or about its session.
func (s *Server) letIn(r *http.Request) (*Principal, error) {
	p := local(r)
	if s.opts.Local != nil {
		if err := s.opts.Local(r); err != nil {
			if len(r.Header.Values("Authorization")) > 0 || !errors.Is(err, api.ErrUnauthorized) {
				return nil, err
			}
			v, none := s.sessions.fromRequest(r)
			if none != nil || s.opts.Local(withBearer(r, v.Token)) != nil {
				return nil, err
			}
			p = v.bound(p)
		}
	}
	return p, p.check()
}

func withBearer(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func (s *Server) sessionRoutes() {
	raw(s, api.SessionCreate, s.createSession)
	raw(s, api.SessionDelete, func(w http.ResponseWriter, r *http.Request, _ *Call, _ *api.Nothing) error {
		if err := fromOwnPage(r); err != nil {
			return err
		}
		http.SetCookie(w, s.sessions.cookie(r, "", -1))
		w.WriteHeader(api.SessionDelete.Status)
		return nil
	})
}

// fromOwnPage refuses a page of another origin, even one that may call the API: it
// has no say in who is logged in here.
func fromOwnPage(r *http.Request) error {
	if !ownPage(r) {
		return fmt.Errorf("%w: only a page of this server logs in and out", api.ErrOrigin)
	}
	return nil
}

func (s *Server) createSession(w http.ResponseWriter, r *http.Request, c *Call, in *api.CreateSession) error {
	if err := fromOwnPage(r); err != nil {
		return err
	}
	asked := withBearer(r, in.Token)
	token, _, err := bearer(asked)
	if err != nil {
		return api.ErrUnauthorized
	}
	var p *Principal
	if s.opts.Auth == nil {
		p, err = s.letIn(asked)
	} else {
		p, err = vet(s.opts.Auth.Authenticate(r.Context(), token))
	}
	if err != nil {
		return err
	}
	v := session{Token: token, Ends: time.Now().Add(sessionTime).UTC().Truncate(time.Second)}
	p = v.bound(p)
	v.Ends = p.Expires
	text, err := s.sessions.encode(v)
	if err != nil {
		return err
	}
	http.SetCookie(w, s.sessions.cookie(r, text, max(1, int(time.Until(v.Ends)/time.Second))))
	return c.Send(w, api.SessionCreate.Status, s.caller(p, true))
}

// caller describes who makes a request.
func (s *Server) caller(p *Principal, session bool) *api.Me {
	return &api.Me{Identity: api.Identity(*p), Login: s.opts.Auth != nil || s.opts.Local != nil, Session: session}
}
