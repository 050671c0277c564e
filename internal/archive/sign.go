package archive

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// signCell holds the seed of the key with which a store signs its exports.
const signCell = "perdure/sign"

// signingKey returns the key of the store, and makes it if it is new.
func (r *Archive) signingKey(ctx context.Context) (ed25519.PrivateKey, error) {
	seed, err := threads.Secret(ctx, r.threads.Store, signCell, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("perdure: the key of exports: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ExportKey returns the public key by which exports of the store are signed.
func (r *Archive) ExportKey(ctx context.Context) (string, error) {
	key, err := r.signingKey(ctx)
	if err != nil {
		return "", err
	}
	return keyText(key), nil
}

func keyText(key ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

// readKey returns a public key that is written as ExportKey does.
func readKey(text string) (ed25519.PublicKey, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: %.60q is no public key as perdure verify shows them", fault.ErrInvalid, text)
	}
	return raw, nil
}

func CheckKeys(keys []string) error {
	for _, k := range keys {
		if _, err := readKey(k); err != nil {
			return err
		}
	}
	return nil
}

// signed is what the signature of an export is made of.
func signed(sum string) []byte { return []byte("perdure export\n" + sum) }

// checkSignature returns why the last line of an export is not signed by the key
// that it names.
func (e exportEnd) checkSignature() error {
	key, err := readKey(e.Key)
	if err != nil {
		return err
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(e.Sig)
	if err != nil || !ed25519.Verify(key, signed(e.Sum), sig) {
		return fmt.Errorf("the signature is not by the key %s", e.Key)
	}
	return nil
}

// trusts reports whether what people have decided counts here, as an export with
// this signer tells it. The key of the store itself, and those in Options, stand
// for threads of the same tenant.
func (im *importer) trusts(ctx context.Context, signer string) (bool, error) {
	if signer == "" {
		return false, nil
	}
	if slices.Contains(im.trust, signer) {
		return true, nil
	}
	own := ""
	cell, err := im.archive.threads.Store.Get(ctx, signCell)
	switch {
	case err == nil && len(cell.Value) == ed25519.SeedSize:
		own = keyText(ed25519.NewKeyFromSeed(cell.Value))
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	return im.from == im.archive.tenant.Name && (signer == own || slices.Contains(im.archive.trust, signer)), nil
}
