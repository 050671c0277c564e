package credentials

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/seal"
)

// keysVariable is the environment variable with the keys that seal credentials
// in a store that is not sealed.
const keysVariable = "PERDURE_KEYS"

// sealedSecret is what is kept of a credential. It has the secret in clear only
// in a store that is sealed, which then seals the cell.
type sealedSecret struct {
	By    string `json:"by,omitempty"` // who gave it
	Clear []byte `json:"clear,omitempty"`
	Key   []byte `json:"key,omitempty"` // data key, wrapped by the ring
	Box   []byte `json:"box,omitempty"` // the secret, sealed with the data key

	Tenant string `json:"tenant,omitempty"` // whose it is, for those who rotate keys
}

// Format implements fmt.Formatter, so that no message shows what is in clear.
func (s sealedSecret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

func isSealed(s store.Store) bool {
	_, ok := store.As[*seal.Store](s)
	return ok
}

// boundTo returns what a sealed secret is bound to.
func (c *Credentials) boundTo(user, name string) []byte {
	var b []byte
	for _, text := range []string{"perdure credential", c.shelf.Tenant(), user, name} {
		b = fmt.Appendf(b, "%d:%s", len(text), text)
	}
	return b
}

// environmentKeys returns the keys of the environment.
func environmentKeys() (*seal.Ring, error) {
	text := os.Getenv(keysVariable)
	if text == "" {
		return nil, fmt.Errorf("%w: every process of the store needs the same %s, servers that take credentials as well as workers; see perdure docs operations", ErrUnsealed, keysVariable)
	}
	r, err := seal.ParseRing(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnsealed, keysVariable, err)
	}
	return r, nil
}

func newCipher(key []byte) (cipher.AEAD, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(b)
}

func (c *Credentials) seal(ctx context.Context, user, name, secret string) (*sealedSecret, error) {
	if isSealed(c.shelf.Store()) {
		return &sealedSecret{Clear: []byte(secret)}, nil
	}
	keys, err := environmentKeys()
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	rand.Read(key)
	aead, err := newCipher(key)
	if err != nil {
		return nil, err
	}
	s := &sealedSecret{Tenant: c.shelf.Tenant(), Box: aead.Seal(nil, nil, []byte(secret), c.boundTo(user, name))}
	s.Key, err = keys.Wrap(ctx, key, c.boundTo(user, name))
	return s, err
}

func (c *Credentials) unseal(ctx context.Context, user, name string, raw json.RawMessage) (string, error) {
	var s sealedSecret
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("agent: credential %q cannot be read: %w", name, store.ErrCorrupt)
	}
	if s.Box == nil {
		// This package puts no clear text into a store that is not sealed.
		if !isSealed(c.shelf.Store()) || len(s.Clear) == 0 {
			return "", fmt.Errorf("%w: %q is kept in clear in a store that is not sealed; give it again", ErrUnsealed, name)
		}
		return string(s.Clear), nil
	}
	keys, err := environmentKeys()
	if err != nil {
		return "", err
	}
	key, err := keys.Unwrap(ctx, s.Key, c.boundTo(user, name))
	if err != nil {
		return "", named(name, err)
	}
	var secret []byte
	aead, err := newCipher(key)
	if err == nil {
		secret, err = aead.Open(nil, nil, s.Box, c.boundTo(user, name))
	}
	if err != nil {
		return "", fmt.Errorf("agent: credential %q cannot be opened: %w", name, store.ErrCorrupt)
	}
	return string(secret), nil
}
