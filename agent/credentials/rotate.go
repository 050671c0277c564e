package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/seal"
)

// Keys counts the credentials of all tenants in a runtime's store by the id of the key
// of PERDURE_KEYS that seals them. In a sealed store the store itself seals credentials,
// and they are not counted.
func Keys(ctx context.Context, rt *perdure.Runtime) (map[string]int, error) {
	counts := map[string]int{}
	for v, err := range Of(rt).shelf.Everywhere(ctx, "") {
		if err != nil {
			return counts, fmt.Errorf("agent: credentials: %w", err)
		}
		if id := keyOf(v.Value); id != "" {
			counts[id]++
		}
	}
	return counts, nil
}

// Mismatched counts the credentials that cannot be opened because PERDURE_KEYS has
// another key under the id of the one that sealed them.
func Mismatched(ctx context.Context, rt *perdure.Runtime) (map[string]int, error) {
	c, counts := Of(rt), map[string]int{}
	keys, err := environmentKeys()
	if err != nil {
		return nil, err
	}
	for v, err := range c.shelf.Everywhere(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("agent: credentials: %w", err)
		}
		if id := keyOf(v.Value); id != "" && keys.Holds(id) {
			if o, err := c.open(ctx, keys, v, nil); o != nil && errors.Is(err, store.ErrKey) {
				counts[id]++
			}
		}
	}
	return counts, nil
}

// keyOf returns the id of the key that seals a credential, "" if it has none.
func keyOf(raw json.RawMessage) string {
	var s sealedSecret
	if json.Unmarshal(raw, &s) != nil || s.Key == nil {
		return ""
	}
	id, ok := new(seal.Ring).KeyOf(s.Key)
	if !ok {
		return "unknown"
	}
	return id
}

// Ring returns the keys of PERDURE_KEYS, or ErrUnsealed if there are none.
func Ring() (*seal.Ring, error) { return environmentKeys() }

// Rotate seals the credentials of all tenants with the first key of PERDURE_KEYS. Each
// call looks at up to most credentials that come after the one named by after, which is
// "" at first. It returns the last one as next, or "" if there are no more. Rotate can be
// interrupted and repeated while credentials are given, read and forgotten.
//
// A credential from an earlier version does not name the tenant that it is bound to, so
// Rotate tries the given tenants. The error says how many credentials it could not
// rotate; it rotates the others.
func Rotate(ctx context.Context, rt *perdure.Runtime, after string, most int, tenants ...string) (next string, rotated int, err error) {
	c := Of(rt)
	keys, err := environmentKeys()
	if err != nil {
		return after, 0, err
	}
	failed, why := 0, error(nil)
	for v, err := range c.shelf.Everywhere(ctx, after) {
		if err != nil {
			return after, rotated, fmt.Errorf("agent: credentials: %w", err)
		}
		if most == 0 {
			next = after
			break
		}
		after, most = v.Cell, most-1
		switch id := keyOf(v.Value); id {
		case "":
			continue
		case keys.Primary(): // unless another key has that id now
			if _, err := c.open(ctx, keys, v, tenants); errors.Is(err, store.ErrKey) {
				failed, why = failed+1, cmp.Or(why, err)
			}
			continue
		}
		done, err := c.shelf.Rewrite(ctx, v.Cell, func(v shelf.Value) (json.RawMessage, error) { return c.rewrap(ctx, keys, v, tenants) })
		switch {
		case errors.Is(err, store.ErrKey):
			if failed++; why == nil {
				why = err
			}
		case err != nil:
			return after, rotated, fmt.Errorf("agent: rotate a credential: %w", err)
		case done:
			rotated++
		}
	}
	if failed > 0 {
		return next, rotated, fmt.Errorf("agent: %d credentials were not rotated; keep the old keys (the first error: %w)", failed, why)
	}
	return next, rotated, nil
}

// rewrap returns a credential whose data key is wrapped with the first key, nil if it
// is.
func (c *Credentials) rewrap(ctx context.Context, keys *seal.Ring, v shelf.Value, tenants []string) (json.RawMessage, error) {
	var s sealedSecret
	if err := json.Unmarshal(v.Value, &s); err != nil || s.Key == nil || keys.Current(s.Key) || len(v.Namespace) != 1 {
		return nil, nil
	}
	o, err := c.open(ctx, keys, v, tenants)
	if err != nil {
		return nil, err
	}
	if s.Key, err = keys.Wrap(ctx, o.key, o.bound); err != nil {
		return nil, err
	}
	s.Tenant = o.tenant
	return strict.Encode(&s)
}

// opened is the data key of a credential, what it is bound to, and whose it is.
type opened struct {
	key, bound []byte
	tenant     string
}

// open unwraps the data key of a credential.
func (c *Credentials) open(ctx context.Context, keys *seal.Ring, v shelf.Value, tenants []string) (*opened, error) {
	var s sealedSecret
	if err := json.Unmarshal(v.Value, &s); err != nil || len(v.Namespace) != 1 {
		return nil, err
	}
	candidates := append([]string{s.Tenant, c.shelf.Tenant()}, tenants...)
	i := slices.IndexFunc(candidates, func(tenant string) bool { return c.shelf.OfTenant(tenant).Holds(v.Cell) })
	if i < 0 {
		return nil, fmt.Errorf("%w: a credential from an earlier version does not name its tenant; name all tenants", store.ErrKey)
	}
	of := &Credentials{c.shelf.OfTenant(candidates[i])}
	bound := of.boundTo(v.Namespace[0], v.Key)
	key, err := keys.Unwrap(ctx, s.Key, bound)
	return &opened{key, bound, candidates[i]}, err
}
