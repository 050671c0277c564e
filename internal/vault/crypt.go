package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The objects of a sealed store are encrypted with AES-256-GCM, each with a key of its
// own that is in the thread's cell, which the store seals. So whoever deletes that
// cell shreds the object. The content is cut into pieces; the nonce of a piece is its
// number, and the last one is marked, so that pieces cannot be moved or left out.

const keySize, pieceSize = 32, 64 << 10

func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has another size
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// nonceOf returns the nonce of a piece.
func nonceOf(n uint64, last bool) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce, n)
	if last {
		nonce[11] = 1
	}
	return nonce
}

// sealer encrypts what is written. Close writes the last piece.
type sealer struct {
	w    io.Writer
	aead cipher.AEAD
	n    uint64
	buf  []byte
}

func newSealer(w io.Writer, key []byte) *sealer {
	return &sealer{w: w, aead: newAEAD(key), buf: make([]byte, 0, pieceSize)}
}

func (s *sealer) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		if len(s.buf) == pieceSize {
			if err := s.flush(false); err != nil {
				return 0, err
			}
		}
		n := min(len(p), pieceSize-len(s.buf))
		s.buf, p = append(s.buf, p[:n]...), p[n:]
	}
	return written, nil
}

func (s *sealer) Close() error { return s.flush(true) }

func (s *sealer) flush(last bool) error {
	_, err := s.w.Write(s.aead.Seal(nil, nonceOf(s.n, last), s.buf, nil))
	s.n, s.buf = s.n+1, s.buf[:0]
	return err
}

// opener decrypts what it reads.
type opener struct {
	r    io.Reader
	aead cipher.AEAD
	n    uint64
	next []byte // the piece after the one that is read, still encrypted
	left bytes.Reader
	done bool
}

func newOpener(r io.Reader, key []byte) *opener { return &opener{r: r, aead: newAEAD(key)} }

func (o *opener) Read(p []byte) (int, error) {
	for o.left.Len() == 0 {
		if o.done {
			return 0, io.EOF
		}
		if err := o.open(); err != nil {
			return 0, err
		}
	}
	return o.left.Read(p)
}

// open decrypts the next piece. It is the last if no other follows.
func (o *opener) open() error {
	piece := o.next
	if o.n == 0 {
		var err error
		if piece, err = o.piece(); err != nil {
			return err
		}
	}
	next, err := o.piece()
	if err != nil {
		return err
	}
	o.next, o.done = next, len(next) == 0
	plain, err := o.aead.Open(nil, nonceOf(o.n, o.done), piece, nil)
	if err != nil {
		return fmt.Errorf("%w: piece %d cannot be decrypted", errDamaged, o.n)
	}
	o.n++
	o.left.Reset(plain)
	return nil
}

// piece reads an encrypted piece, empty at the end.
func (o *opener) piece() ([]byte, error) {
	buf := make([]byte, pieceSize+o.aead.Overhead())
	n, err := io.ReadFull(o.r, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return buf[:n], err
}
