package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Tokens is an Authenticator whose tokens are in a runtime's store, shared by all
// servers of the store. The store holds only their hashes. A token that another
// server revokes is refused here within five seconds.
type Tokens struct {
	store store.Store
	hash  func(...string) []byte
	moved func(context.Context) error // refuses writes if the store was migrated
	kept  func(context.Context) error // fails after a write that a migration may have missed

	mu      sync.Mutex
	seen    map[[sha256.Size]byte]seenToken
	revoked int // number of revocations here, so that an earlier lookup is not cached
}

var _ Rechecker = (*Tokens)(nil)

// NewTokens returns the tokens in a runtime's store, of all tenants.
func NewTokens(rt *perdure.Runtime) *Tokens {
	h := threads.Behind(rt).All
	return &Tokens{store: h.Store, hash: h.Hash, moved: h.CheckMoved, kept: h.CheckKept, seen: map[[sha256.Size]byte]seenToken{}}
}

const (
	tokenPrefix = "pdr_"
	tokenCells  = "token/"    // the records, by hash of the secret
	tokenIndex  = "token-of/" // which hashes are a tenant's
	tokenFresh  = 5 * time.Second
	tokenCache  = 4096
)

// seenToken is a token that was looked up recently.
type seenToken struct {
	who *Principal
	at  time.Time
}

// tokenRecord is a token in the store.
type tokenRecord struct {
	api.Identity
	Created time.Time `json:"created"`
	By      string    `json:"by,omitempty"`
	Note    string    `json:"note,omitempty"`
	Revoked time.Time `json:"revoked,omitzero"`
}

func (t *tokenRecord) principal() *Principal { return new(Principal(t.Identity)) }

func (t *tokenRecord) token(hash string) api.Token {
	return api.Token{ID: hash[:idSize], Identity: t.Identity, Note: t.Note, Created: t.Created, By: t.By, Revoked: t.Revoked}
}

// idSize is how much of its hash is a token's id, which reveals nothing about the
// secret.
const idSize = 16

// newSecret returns 32 random bytes as text.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// isSecret reports whether a text has the form of newSecret.
func isSecret(s string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 32 && !strings.ContainsAny(s, "\r\n")
}

// Authenticate finds a token in the store. It compares hashes, never secrets, so
// its timing reveals nothing.
func (t *Tokens) Authenticate(ctx context.Context, token string) (*Principal, error) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || !isSecret(rest) {
		return nil, api.ErrUnauthorized
	}
	hash := sha256.Sum256([]byte(token))
	now := time.Now()
	t.mu.Lock()
	known, ok := t.seen[hash]
	revoked := t.revoked
	t.mu.Unlock()
	if ok && now.Sub(known.at) < tokenFresh && !now.Before(known.at) {
		return vet(known.who, nil)
	}
	who, err := t.Recheck(ctx, hash)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		delete(t.seen, hash)
		return nil, err
	}
	if len(t.seen) >= tokenCache {
		clear(t.seen)
	}
	if revoked == t.revoked {
		t.seen[hash] = seenToken{who, now}
	}
	return who, nil
}

// Recheck looks up a token in the store, ignoring the cache.
func (t *Tokens) Recheck(ctx context.Context, hash [sha256.Size]byte) (*Principal, error) {
	record, _, err := t.get(ctx, hex.EncodeToString(hash[:]))
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, api.ErrUnauthorized
	case !record.Revoked.IsZero():
		return nil, fmt.Errorf("%w: it was revoked", api.ErrUnauthorized)
	}
	return vet(record.principal(), nil)
}

// get returns the record of a hash, nil if there is none.
func (t *Tokens) get(ctx context.Context, hash string) (*tokenRecord, store.Version, error) {
	cell, err := t.store.Get(ctx, tokenCells+hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("server: looking up a token: %w", err)
	}
	record := new(tokenRecord)
	if err := json.Unmarshal(cell.Value, record); err != nil {
		return nil, "", fmt.Errorf("server: the record of token %s cannot be read", hash[:idSize])
	}
	return record, cell.Version, nil
}

// index is the prefix of the cells that name a tenant's tokens.
func (t *Tokens) index(tenant string) string {
	return tokenIndex + hex.EncodeToString(t.hash("tokens", tenant)[:16]) + "/"
}

// Create creates a token for a tenant on behalf of by. The secret is in the result
// and nowhere else.
func (t *Tokens) Create(ctx context.Context, tenant, by string, in api.CreateToken) (*api.NewToken, error) {
	now := time.Now().UTC().Truncate(time.Second)
	r := &tokenRecord{Identity: api.Identity{Tenant: tenant, Subject: cmp.Or(in.Subject, in.User), User: in.User, Groups: in.Groups, Scopes: slices.Clone(in.Scopes)}, Created: now, By: by, Note: in.Note}
	if len(r.Scopes) == 0 {
		r.Scopes = []api.Scope{api.ScopeRead, api.ScopeRun}
		if in.User == "" { // answering for a user must be granted explicitly
			r.Scopes = append(r.Scopes, api.ScopeAnswer)
		}
	}
	slices.Sort(r.Scopes)
	r.Scopes = slices.Compact(r.Scopes)
	if err := r.principal().checkNew(); err != nil {
		return nil, err
	}
	if len(r.Note) > 1000 {
		return nil, api.Invalid("the note has %d bytes; the limit is 1000", len(r.Note))
	}
	switch days, minutes := in.Days, in.Minutes; {
	case days != nil && minutes != nil:
		return nil, api.Invalid("both days and minutes are given; give only one of them")
	case days != nil && (*days < 1 || *days > 36500):
		return nil, api.Invalid("%d days; give 1 to 36500, or omit it for a token that does not expire", *days)
	case minutes != nil && (*minutes < 1 || *minutes > 60*24*366):
		return nil, api.Invalid("%d minutes; give 1 to %d, or omit it for a token that does not expire", *minutes, 60*24*366)
	case days != nil:
		r.Expires = now.AddDate(0, 0, *days)
	case minutes != nil:
		r.Expires = now.Add(time.Duration(*minutes) * time.Minute)
	}
	if err := t.moved(ctx); err != nil {
		return nil, err
	}
	secret := tokenPrefix + newSecret()
	sum := sha256.Sum256([]byte(secret))
	hash := hex.EncodeToString(sum[:])
	value, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// The index comes first: a token that works can be listed and revoked.
	if _, err := t.store.Put(ctx, t.index(tenant)+hash[:idSize], []byte(hash), ""); err != nil {
		return nil, fmt.Errorf("server: making a token: %w", err)
	}
	if _, err := t.store.Put(ctx, tokenCells+hash, value, ""); err != nil {
		return nil, fmt.Errorf("server: making a token: %w", err)
	}
	if err := t.kept(ctx); err != nil {
		return nil, err
	}
	return &api.NewToken{Secret: secret, Token: r.token(hash)}, nil
}

// List returns the tokens of a tenant, the oldest first, including expired and
// revoked ones.
func (t *Tokens) List(ctx context.Context, tenant string) ([]api.Token, error) {
	tokens := []api.Token{}
	for cell, err := range t.store.List(ctx, t.index(tenant), "") {
		if err != nil {
			return nil, fmt.Errorf("server: listing tokens: %w", err)
		}
		r, _, err := t.get(ctx, string(cell.Value))
		if err != nil {
			return nil, err
		}
		if r != nil && r.Tenant == tenant { // nil: its creation was interrupted
			tokens = append(tokens, r.token(string(cell.Value)))
		}
	}
	slices.SortFunc(tokens, func(a, b api.Token) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return tokens, nil
}

// Exist reports whether there is a token, of any tenant, even one that has expired.
func (t *Tokens) Exist(ctx context.Context) (bool, error) {
	for _, err := range t.store.List(ctx, tokenCells, "") {
		return err == nil, err
	}
	return false, nil
}

// Revoke ends a token of a tenant. Revoking it again changes nothing.
func (t *Tokens) Revoke(ctx context.Context, tenant, id string) error {
	missing := fmt.Errorf("%w: there is no token %.40q", api.ErrNotFound, id)
	if b, err := hex.DecodeString(id); err != nil || len(b) != idSize/2 || strings.ToLower(id) != id {
		return missing
	}
	if err := t.moved(ctx); err != nil {
		return err
	}
	cell, err := t.store.Get(ctx, t.index(tenant)+id)
	if errors.Is(err, store.ErrNotFound) {
		return missing
	}
	if err != nil {
		return fmt.Errorf("server: revoking a token: %w", err)
	}
	var done = errors.New("it is revoked")
	_, err = store.Update(ctx, t.store, tokenCells+string(cell.Value), func(old store.Cell) ([]byte, error) {
		r := new(tokenRecord)
		if old.Version == "" || json.Unmarshal(old.Value, r) != nil || r.Tenant != tenant {
			return nil, missing
		}
		if !r.Revoked.IsZero() {
			return nil, done
		}
		r.Revoked = time.Now().UTC().Truncate(time.Second)
		return json.Marshal(r)
	})
	t.forget(string(cell.Value))
	if errors.Is(err, done) || err == nil {
		return t.kept(ctx)
	}
	if errors.Is(err, missing) {
		return missing
	}
	return fmt.Errorf("server: revoking a token: %w", err)
}

// forget removes a token from the cache.
func (t *Tokens) forget(hash string) {
	var key [sha256.Size]byte
	hex.Decode(key[:], []byte(hash))
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, key)
	t.revoked++
}

func (s *Server) tokenRoutes() {
	handle(s, api.TokensCreate, withTokens(s, s.createToken))
	handle(s, api.TokensList, withTokens(s, func(ctx context.Context, c *Call, _ *api.Nothing) (*api.TokenList, error) {
		tokens, err := s.tokens.List(ctx, c.Who.Tenant)
		return &api.TokenList{Tokens: tokens}, err
	}))
	handle(s, api.TokensRevoke, withTokens(s, func(ctx context.Context, c *Call, in *api.OneToken) (*api.None, error) {
		return nil, s.tokens.Revoke(ctx, c.Who.Tenant, in.ID)
	}))
	raw(s, api.TicketsCreate, s.createTicket)
}

// tokensOf returns the tokens that an Authenticator uses, or those of the store
// without an Authenticator. It is nil if a token created here would never be
// accepted.
func tokensOf(rt *perdure.Runtime, a Authenticator) *Tokens {
	switch a := a.(type) {
	case nil:
		return NewTokens(rt)
	case *Tokens:
		return a
	case anyOf:
		for _, one := range a {
			if t := tokensOf(rt, one); t != nil {
				return t
			}
		}
	}
	return nil
}

// withTokens makes a handler of one that needs the tokens of the store.
func withTokens[In, Out any](s *Server, fn func(context.Context, *Call, *In) (*Out, error)) func(context.Context, *Call, *In) (*Out, error) {
	return func(ctx context.Context, c *Call, in *In) (*Out, error) {
		if s.tokens == nil {
			return nil, fmt.Errorf("%w: this server's tokens are not kept in its store", api.ErrNotFound)
		}
		return fn(ctx, c, in)
	}
}

func (s *Server) createToken(ctx context.Context, c *Call, in *api.CreateToken) (*api.NewToken, error) {
	tenant := c.Who.Tenant
	switch {
	case in.Tenant == "" || in.Tenant == tenant:
	case s.opts.Auth == nil: // without authentication anyone may create the first token of a tenant
		tenant = in.Tenant
	default:
		return nil, fmt.Errorf("%w: you can create tokens only for your own tenant", api.ErrScope)
	}
	return s.tokens.Create(ctx, tenant, c.Who.Subject, *in)
}
