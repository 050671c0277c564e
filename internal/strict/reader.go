package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Reader reads a JSON value in one pass. It returns an error as soon as it
// meets something that the package refuses.
type Reader struct {
	data  []byte
	d     *json.Decoder
	depth int
}

// NewReader returns a reader of a value.
func NewReader(data []byte) (*Reader, error) {
	if err := Text(data); err != nil {
		return nil, err
	}
	r := &Reader{data: data, d: json.NewDecoder(bytes.NewReader(data))}
	r.d.UseNumber()
	return r, nil
}

// Kind returns the first byte of the next value, which tells its kind, or 0 at
// the end.
func (r *Reader) Kind() byte {
	if i := r.next(); i < len(r.data) {
		return r.data[i]
	}
	return 0
}

// next returns where the next value begins.
func (r *Reader) next() int {
	i := int(r.d.InputOffset())
	for i < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[i]) >= 0 {
		i++
	}
	return i
}

// Object reads an object. It calls member for each name; member must read the
// value.
func (r *Reader) Object(member func(name string) error) error {
	if err := r.enter('{', "an object"); err != nil {
		return err
	}
	var seen map[string]string
	for r.d.More() {
		tok, err := r.token()
		if err != nil {
			return err
		}
		name, _ := tok.(string) // the decoder accepts nothing else
		folded := Fold(name)
		if other, twice := seen[folded]; twice {
			if other == name {
				return fmt.Errorf("the name %q occurs twice in an object", name)
			}
			return fmt.Errorf("the names %q and %q in an object differ only in case", other, name)
		}
		if seen == nil {
			seen = map[string]string{}
		}
		seen[folded] = name
		if err := member(name); err != nil {
			return err
		}
	}
	return r.leave()
}

// List reads a list. It calls element for each element; the function must read
// it.
func (r *Reader) List(element func(i int) error) error {
	if err := r.enter('[', "a list"); err != nil {
		return err
	}
	for i := 0; r.d.More(); i++ {
		if err := element(i); err != nil {
			return err
		}
	}
	return r.leave()
}

// Read is JSON that a Reader has checked, so encoders need not parse it again.
type Read json.RawMessage

// MarshalJSON returns the JSON as it was read.
func (r Read) MarshalJSON() ([]byte, error) { return r, nil }

// Compact returns a copy without the spaces between values.
func (r Read) Compact() (json.RawMessage, error) {
	if !bytes.ContainsAny(r, " \t\r\n") {
		return bytes.Clone(r), nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, r)
	return b.Bytes(), err
}

// Raw reads a value of any kind and returns it as a slice of the reader's data.
func (r *Reader) Raw() (json.RawMessage, error) {
	begin := r.next()
	if err := r.skip(); err != nil {
		return nil, err
	}
	return r.data[begin:r.d.InputOffset()], nil
}

func (r *Reader) skip() error {
	switch r.Kind() {
	case '{':
		return r.Object(func(string) error { return r.skip() })
	case '[':
		return r.List(func(int) error { return r.skip() })
	}
	_, err := r.token()
	return err
}

// End returns an error if something follows the value.
func (r *Reader) End() error {
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// enter reads the beginning of an object or list.
func (r *Reader) enter(delim json.Delim, what string) error {
	if r.Kind() != byte(delim) {
		return fmt.Errorf("it has to be %s", what)
	}
	if _, err := r.token(); err != nil {
		return err
	}
	if r.depth++; r.depth > MaxDepth {
		return fmt.Errorf("it is nested deeper than %d", MaxDepth)
	}
	return nil
}

// leave reads the end of an object or list.
func (r *Reader) leave() error {
	r.depth--
	_, err := r.token()
	return err
}

func (r *Reader) token() (json.Token, error) {
	tok, err := r.d.Token()
	if errors.Is(err, io.EOF) {
		err = errors.New("it ends too early")
	}
	return tok, err
}
