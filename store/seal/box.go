package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"

	"github.com/perdure/perdure/store"
)

const (
	keySize = 32

	// format is the first byte of sealed data; nonce, ciphertext and tag
	// follow. Neither JSON nor any UTF-8 text begins with it, so that unsealed
	// bytes can be distinguished from damaged ones.
	format = 0xA1

	// overhead is what sealing adds: format, nonce, tag.
	overhead = 1 + 12 + 16
)

// kind says what is sealed. Sealed data is bound to it, so that no kind can pass
// for another.
type kind byte

const (
	entryKind kind = 'e'
	cellKind  kind = 'c'
	castKind  kind = 'm'
)

// newBox returns a box for a key of keySize bytes.
func newBox(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length has been checked
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return box
}

// root returns the box of one cell or topic.
type root func(k kind, name string) cipher.AEAD

// rootOf derives boxes from a key. The key is held by a function, so that a store
// that is printed or logged does not show it.
func rootOf(key []byte) root {
	return func(k kind, name string) cipher.AEAD {
		derived, err := hkdf.Key(sha256.New, key, nil, "perdure seal "+string(k)+" "+name, keySize)
		if err != nil {
			panic(err) // SHA-256 can give keySize bytes
		}
		return newBox(derived)
	}
}

// bound returns what sealed data is bound to: its kind and its place.
func bound(k kind, name string, seq uint64) []byte {
	b := make([]byte, 0, 10+len(name))
	b = append(b, format, byte(k))
	b = binary.BigEndian.AppendUint64(b, seq)
	return append(b, name...)
}

func lock(box cipher.AEAD, plain, aad []byte) []byte {
	sealed := make([]byte, 1, len(plain)+overhead)
	sealed[0] = format
	return box.Seal(sealed, nil, plain, aad)
}

// unlock returns what was sealed, or the reason why it cannot be opened.
func unlock(box cipher.AEAD, sealed, aad []byte) (plain []byte, reason string) {
	if !isSealed(sealed) {
		return nil, notSealed
	}
	plain, err := box.Open(make([]byte, 0, len(sealed)), nil, sealed[1:], aad)
	if err != nil {
		return nil, "the seal is broken: the data was changed, or moved here from elsewhere"
	}
	return plain, ""
}

const notSealed = "the data is not sealed and therefore refused: it was written without encryption, or its first byte is damaged"

func isSealed(data []byte) bool { return len(data) > 0 && data[0] == format }

func corruptEntry(journal string, seq uint64, reason string) error {
	return &store.CorruptError{Journal: journal, Seq: seq, Reason: reason}
}

func corruptCell(c store.Cell, reason string) error {
	return &store.CorruptError{Cell: c.Key, Version: c.Version, Reason: reason}
}
