package archive

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
)

// Sign signs a text with the store's key, for a purpose that no signature for another
// one serves. It returns the public key and the signature.
func (a *Archive) Sign(ctx context.Context, purpose string, text []byte) (key, sig string, err error) {
	private, err := a.signingKey(ctx)
	if err != nil {
		return "", "", err
	}
	return keyText(private), base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, signedText(purpose, text))), nil
}

// CheckSigned returns an error unless a signature is one of Sign.
func CheckSigned(key, sig, purpose string, text []byte) error {
	public, err := readKey(key)
	if err != nil {
		return err
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sig)
	if err != nil || !ed25519.Verify(public, signedText(purpose, text), raw) {
		return fmt.Errorf("%w: the signature is not by the key %s", fault.ErrInvalid, key)
	}
	return nil
}

func signedText(purpose string, text []byte) []byte {
	return append([]byte("perdure "+purpose+"\n"), text...)
}
