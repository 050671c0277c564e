package kvstore

import (
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/perdure/perdure/store"
)

// The kinds of keys. A dash is not a digit of a name, so what follows a name is
// never mistaken for part of it.
const (
	cellTag  = "c-"
	headTag  = "h-"
	batchTag = "b-"

	seqDigits = 16
)

const digits = "0123456789abcdefghijklmnopqrstuv"

// names encodes names so that their encodings sort as they do: the digits are in
// order, and hold the bits of a name from first to last.
var names = base32.NewEncoding(digits).WithPadding(base32.NoPadding)

func cellKey(name string) string { return cellTag + encode(name) }

func headKey(journal string) string { return headTag + encode(journal) }

// batchPrefix begins the keys of all moved batches of a journal, and of no
// other journal.
func batchPrefix(journal string) string { return batchTag + encode(journal) + "-" }

func batchKey(journal string, last uint64) string {
	return fmt.Sprintf("%s%0*x", batchPrefix(journal), seqDigits, last)
}

// batchLast returns the sequence in the key of a moved batch.
func batchLast(key string) (uint64, error) {
	last, err := strconv.ParseUint(key[strings.LastIndexByte(key, '-')+1:], 16, 64)
	if err != nil {
		return 0, &damage{key, "this is no key of a batch"}
	}
	return last, nil
}

func encode(name string) string { return names.EncodeToString([]byte(name)) }

// decode returns the name in a key of the given kind.
func decode(tag, key string) (string, error) {
	name, err := names.DecodeString(strings.TrimPrefix(key, tag))
	if err != nil || len(name) == 0 || tag+encode(string(name)) != key {
		return "", &store.CorruptError{
			Where:  fmt.Sprintf("key %q", key),
			Reason: "this is not a key of a kvstore; do not keep other things in its part of the engine",
		}
	}
	return string(name), nil
}

// common returns the digits that begin the encodings of all names that begin with
// prefix. They may begin those of a few other names too, since a byte is not a
// whole number of digits.
func common(prefix string) string { return encode(prefix)[:8*len(prefix)/5] }

// behind returns the key after which to list for names of a kind that begin with
// prefix and come after the given name; "" lists the whole kind.
func behind(tag, prefix, after string) string {
	if after >= prefix {
		if after == "" {
			return ""
		}
		// No name is longer than MaxName, so the rest does not matter.
		return tag + encode(after[:min(len(after), store.MaxName)])
	}
	// The last key before all keys that begin with these digits.
	first := encode(prefix)
	init, digit := first[:len(first)-1], strings.IndexByte(digits, first[len(first)-1])
	if digit == 0 {
		return tag + init
	}
	return tag + init + digits[digit-1:digit] + "z"
}
