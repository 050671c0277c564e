package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// tickets admit a browser's EventSource, which cannot send a token: its address
// has a ticket that is valid once and is exchanged for a cookie, since it
// reconnects to the same address by itself.
type tickets struct {
	store store.Store
	hash  func(...string) []byte
	auth  Authenticator

	mu    sync.Mutex
	swept string // up to this cell expired ones were removed
}

const (
	ticketCells  = "ticket/"
	ticketTime   = 30 * time.Second
	cookieTime   = time.Hour
	cookieName   = "perdure_stream"
	sweepAtATime = 64
)

// pass is a ticket or a cookie in the store, under the hash of its secret.
type pass struct {
	Cookie bool      `json:"cookie,omitempty"`
	Stream string    `json:"stream"` // a hash: the thread may be erased
	Ends   time.Time `json:"ends"`
	Local  bool      `json:"local,omitempty"` // created without Options.Auth
	Token  string    `json:"token,omitempty"` // hash of the token behind it, if that can be rechecked
	// Me is that of the token, but for the user whom the pass is limited to.
	api.Identity
}

func (p *pass) expired() bool { return !time.Now().Before(p.Ends) }

// streamOf returns the thread whose events a request follows, "" for the tenant's
// stream, and whether it is such a request.
func streamOf(r *http.Request, op *api.Info) (thread string, ok bool) {
	switch {
	case r.Method != http.MethodGet:
		return "", false
	case op.Name == api.EventsList.Name:
		return r.PathValue("thread"), true
	}
	return "", op.Name == api.EventsWatch.Name
}

func (t *tickets) stream(tenant, thread string) string {
	return hex.EncodeToString(t.hash("stream", tenant, thread))
}

func ticketKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return ticketCells + hex.EncodeToString(sum[:])
}

func (s *Server) createTicket(w http.ResponseWriter, r *http.Request, c *Call, in *api.CreateTicket) error {
	if len(in.Thread) > 200 {
		return api.Invalid("the thread %.40q…", in.Thread)
	}
	if _, err := threads.Behind(c.Runtime).Find(r.Context(), in.Thread); errors.Is(err, perdure.ErrArchived) {
		return err // it has no events until it is restored; one that does not exist may yet begin
	}
	t, who := &s.tickets, c.Who
	p := &pass{Stream: t.stream(who.Tenant, in.Thread), Ends: time.Now().Add(ticketTime), Local: t.auth == nil, Identity: api.Identity(*who)}
	if p.User = cmp.Or(in.User, who.User); p.User != "" {
		if err := checkName("user", p.User); err != nil {
			return err
		}
	}
	if !p.Local {
		var err error
		if p.Token, err = t.behind(r.Context(), s.token(r)); err != nil {
			return err
		}
	}
	secret, err := t.put(r.Context(), p)
	if err != nil {
		return err
	}
	t.sweep(r.Context())
	return c.Send(w, api.TicketsCreate.Status, api.Ticket{Ticket: secret, Expires: p.Ends})
}

// behind returns the hash by which a token can be rechecked, "" if that is not
// possible.
func (t *tickets) behind(ctx context.Context, token string) (string, error) {
	hash := sha256.Sum256([]byte(token))
	if a, ok := t.auth.(Rechecker); ok {
		_, err := vet(a.Recheck(ctx, hash))
		if err == nil {
			return hex.EncodeToString(hash[:]), nil
		}
		if !errors.Is(err, api.ErrUnauthorized) {
			return "", err
		}
	}
	// It was just revoked, or belongs to an Authenticator without hashes.
	_, err := vet(t.auth.Authenticate(ctx, token))
	return "", err
}

// put stores a pass and returns its secret.
func (t *tickets) put(ctx context.Context, p *pass) (string, error) {
	if !p.Expires.IsZero() && p.Expires.Before(p.Ends) {
		p.Ends = p.Expires
	}
	value, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	secret := newSecret()
	if _, err := t.store.Put(ctx, ticketKey(secret), value, ""); err != nil {
		return "", fmt.Errorf("server: creating a ticket: %w", err)
	}
	return secret, nil
}

// get returns the pass of a secret if it is for the stream of a thread.
func (t *tickets) get(ctx context.Context, secret, thread string, cookie bool) (*pass, store.Version, error) {
	if !isSecret(secret) {
		return nil, "", api.ErrUnauthorized
	}
	cell, err := t.store.Get(ctx, ticketKey(secret))
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", fmt.Errorf("%w: the ticket was used or is not valid", api.ErrUnauthorized)
	}
	if err != nil {
		return nil, "", fmt.Errorf("server: looking up a ticket: %w", err)
	}
	p := new(pass)
	if err := json.Unmarshal(cell.Value, p); err != nil {
		return nil, "", errors.New("server: a ticket cannot be read")
	}
	switch {
	case p.expired():
		t.store.Delete(ctx, cell.Key, cell.Version) // if that fails, the sweep removes it
		return nil, "", fmt.Errorf("%w: the ticket is too old", api.ErrUnauthorized)
	case p.Cookie != cookie || p.Local || p.Stream != t.stream(p.Tenant, thread):
		return nil, "", fmt.Errorf("%w: the ticket is for another stream", api.ErrUnauthorized)
	}
	return p, cell.Version, nil
}

// admit admits a request with a ticket, which it uses up, or with the cookie that
// was set for one.
func (t *tickets) admit(w http.ResponseWriter, r *http.Request, thread string) (who, error) {
	given := r.URL.Query()["ticket"]
	result := api.ErrUnauthorized
	if len(given) == 1 && given[0] != "" {
		p, err := t.redeem(r.Context(), given[0], thread)
		if err == nil {
			return t.enter(w, r, p)
		}
		if !errors.Is(err, api.ErrUnauthorized) {
			return nil, err
		}
		result = err
	}
	cookies := r.CookiesNamed(cookieName)
	for _, c := range cookies[:min(len(cookies), 4)] {
		p, _, err := t.get(r.Context(), c.Value, thread, true)
		if err == nil {
			return t.who(p), nil
		}
		if !errors.Is(err, api.ErrUnauthorized) {
			return nil, err
		}
	}
	return nil, result
}

// redeem removes a ticket. Of several attempts only one succeeds, and none if the
// outcome of the removal is unknown.
func (t *tickets) redeem(ctx context.Context, secret, thread string) (*pass, error) {
	for range 4 {
		p, version, err := t.get(ctx, secret, thread, false)
		if err != nil {
			return nil, err
		}
		err = t.store.Delete(ctx, ticketKey(secret), version)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("server: taking a ticket: %w", err)
		}
	}
	return nil, fmt.Errorf("%w: the ticket could not be taken", api.ErrUnauthorized)
}

// enter sets the cookie with which the holder of a ticket reconnects.
func (t *tickets) enter(w http.ResponseWriter, r *http.Request, p *pass) (who, error) {
	back := *p
	back.Cookie, back.Ends = true, time.Now().Add(cookieTime)
	who := t.who(&back)
	if _, err := who(r.Context()); err != nil {
		return nil, err
	}
	secret, err := t.put(r.Context(), &back)
	if err != nil {
		return nil, err
	}
	path, _, _ := strings.Cut(r.RequestURI, "?") // as the browser has it, also below a prefix
	if !strings.HasPrefix(path, "/") {
		path = r.URL.EscapedPath()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: secret, Path: path,
		MaxAge:   max(1, int(time.Until(back.Ends)/time.Second)),
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: secured(r)})
	return who, nil
}

// who returns how to look up the holder of a pass: whoever the token behind it
// stands for at that time.
func (t *tickets) who(p *pass) who {
	return func(ctx context.Context) (*Principal, error) {
		if p.Token == "" {
			ends := p.Ends
			if !p.Expires.IsZero() && p.Expires.Before(ends) {
				ends = p.Expires
			}
			return vet(p.narrow(&Principal{Tenant: p.Tenant, Subject: p.Subject, Groups: p.Groups, Scopes: p.Scopes, Expires: ends}), nil)
		}
		a, ok := t.auth.(Rechecker)
		var hash [sha256.Size]byte
		if n, err := hex.Decode(hash[:], []byte(p.Token)); !ok || err != nil || n != len(hash) {
			return nil, api.ErrUnauthorized
		}
		now, err := vet(a.Recheck(ctx, hash))
		if err == nil && (now.Tenant != p.Tenant || now.Subject != p.Subject) {
			return nil, api.ErrUnauthorized
		}
		if err != nil {
			return nil, err
		}
		return vet(p.narrow(now), nil)
	}
}

// narrow limits the principal of a token to the user of a ticket. It is nil if the
// token is now limited to another user.
func (p *pass) narrow(who *Principal) *Principal {
	switch {
	case p.User == who.User:
		return who
	case who.User != "":
		return nil
	}
	return &Principal{Tenant: who.Tenant, Subject: p.User, User: p.User, Scopes: []api.Scope{api.ScopeRead}, Expires: who.Expires}
}

// sweep removes some expired passes; the next call continues after them. Those
// that it cannot remove do no harm.
func (t *tickets) sweep(ctx context.Context) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	seen := 0
	for cell, err := range t.store.List(ctx, ticketCells, t.swept) {
		if err != nil {
			break
		}
		p := new(pass)
		if json.Unmarshal(cell.Value, p) != nil || p.expired() {
			t.store.Delete(ctx, cell.Key, cell.Version)
		}
		if seen++; seen == sweepAtATime {
			t.swept = cell.Key
			return
		}
	}
	t.swept = ""
}
