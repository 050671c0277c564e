package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// maxSlug is how much of a name is shown in the name of its file.
const maxSlug = 40

// place is where the file of a name is, in its shelf.
type place struct {
	shard byte   // which of the 256 folders
	hash  string // 128 bits of the name's SHA-256, in hex
	base  string // the file's name, without extension
}

func placeOf(name string) place {
	sum := sha256.Sum256([]byte(name))
	p := place{shard: sum[0], hash: hex.EncodeToString(sum[:16])}
	p.base = p.hash
	if slug := slugOf(name); slug != "" {
		p.base = slug + "-" + p.hash
	}
	return p
}

// slugOf returns a part of the name in characters that every file system accepts
// and distinguishes. It is only for people; the hash identifies the name.
func slugOf(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case b.Len() == maxSlug:
			return strings.TrimSuffix(b.String(), "-")
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimSuffix(b.String(), "-")
}

// index is the sorted set of the names in a shelf. It is read from the files on
// first use, and kept up to date from then on.
type index struct {
	mu      sync.Mutex
	known   bool
	sorted  []string
	damaged map[string]error // by file, where the name cannot be read
}

// load reads the index with scan unless it is loaded.
func (x *index) load(scan func() (names []string, damaged map[string]error, err error)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known {
		return nil
	}
	names, damaged, err := scan()
	if err != nil {
		return err
	}
	slices.Sort(names)
	x.sorted, x.damaged, x.known = names, damaged, true
	return nil
}

func (x *index) add(name, file string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.damaged, file)
	if i, found := slices.BinarySearch(x.sorted, name); x.known && !found {
		x.sorted = slices.Insert(x.sorted, i, name)
	}
}

func (x *index) remove(name, file string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i, found := slices.BinarySearch(x.sorted, name); found {
		x.sorted = slices.Delete(x.sorted, i, i+1)
	}
	delete(x.damaged, file)
}

// behind returns up to limit names that begin with prefix and come after the given
// one, in order.
func (x *index) behind(prefix, after string, limit int) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, found := slices.BinarySearch(x.sorted, max(prefix, after))
	if found && x.sorted[i] == after {
		i++
	}
	var names []string
	for _, name := range x.sorted[i:] {
		if len(names) == limit || !strings.HasPrefix(name, prefix) {
			break
		}
		names = append(names, name)
	}
	return names
}

// damage returns the error of the first file whose name cannot be read but may
// begin with prefix: a file's name begins with the slug of its name.
func (x *index) damage(prefix string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	first, slug := "", slugOf(prefix)
	for file := range x.damaged {
		if strings.HasPrefix(filepath.Base(file), slug) && (first == "" || file < first) {
			first = file
		}
	}
	return x.damaged[first]
}
