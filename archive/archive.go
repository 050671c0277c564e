// Package archive keeps threads outside the store, in a folder or a bucket, as one
// object each. It imports only the standard library; a place other than a folder is a
// separate driver, linked only into programs that import it.
//
//	place, err := archive.Open(ctx, "file:/var/lib/archive")
//	rt, err := perdure.New(ctx, store, perdure.Options{Archive: place}, flows...)
//	_, err = rt.Archive(ctx, "order-7", perdure.Note{By: "retention"})
//	err = rt.Restore(ctx, "order-7", perdure.RestoreOptions{})
//
// An object is a compressed export of the thread, see docs/archive.md, and
// encrypted if the store is sealed.
//
// To keep threads elsewhere, implement [Place] and run archivetest.Run on it.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Place keeps objects under names of up to 200 lower-case letters, digits, dots,
// dashes and single slashes. Its methods may be called concurrently, even for the same
// name.
type Place interface {
	// Put writes an object of at least one byte, replacing any object of that name.
	// When it returns nil, the object is durable. After an error there is the whole
	// new object, the whole old one, or none, but never a part. Errors of the place,
	// here and in other methods, match ErrFull or ErrUnavailable; errors of r do not.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get returns the content of an object. The error, of Get or of reading, is
	// ErrNotFound if there is none, and ErrThawing if it cannot be read yet.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List yields the names that begin with prefix and come after the given one,
	// in bytewise order.
	List(ctx context.Context, prefix, after string) iter.Seq2[string, error]
	// Delete deletes an object for good, and whatever a killed Put of it left behind.
	// A missing object is not an error. When Delete removes the last object of a
	// folder (the name up to its last slash), it also removes what any killed Put left
	// there. It does not disturb others that write to a folder with more objects.
	Delete(ctx context.Context, name string) error
	// URL names the place for people, without secrets.
	URL() string
}

// A Freezer is a Place in which objects are finally kept where they cannot be read at
// once. Put writes an object that can be read; once it has been read back and checked,
// Freeze is called to move it to its final location.
type Freezer interface {
	Freeze(ctx context.Context, name string) error
}

// Identified is implemented by a Place that can be told apart from others with the same
// URL, such as a mount point without its disk. A missing object proves a deletion only if
// the place is the one that the object was written to.
type Identified interface {
	// ID returns a text that no other place has, or "" if it is not known or the place
	// is not in use yet.
	ID() string
	// Begin gives the place an ID, unless it has one. It is called before the first
	// object is put there, unless there are signs that this is the wrong place.
	Begin(ctx context.Context) error
}

var (
	// ErrNotFound: the place has no object of that name.
	ErrNotFound = errors.New("archive: no such object")
	// ErrThawing: the object is in cold storage, and has to be brought back before
	// it can be read. The error says how to ask for that.
	ErrThawing = errors.New("archive: the object has to be thawed first")
	// ErrFull: there is no space left where objects are written.
	ErrFull = errors.New("archive: no space left")
	// ErrUnavailable: the place cannot be read, or written to, for another reason.
	ErrUnavailable = errors.New("archive: the archive cannot be used")
	// ErrInvalid: a name or a URL is not valid.
	ErrInvalid = errors.New("archive: invalid")
)

// MaxName is the length of the longest name of an object.
const MaxName = 200

// CheckName returns an error if name cannot be the name of an object.
func CheckName(name string) error {
	ok := name != "" && len(name) <= MaxName
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && part[0] != '.' && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
	}
	if !ok {
		return fmt.Errorf("%w: %.60q cannot be the name of an object", ErrInvalid, name)
	}
	return nil
}

// OpenFunc opens the place at a URL, which includes the scheme.
type OpenFunc func(ctx context.Context, url string) (Place, error)

var registry struct {
	sync.Mutex
	schemes map[string]OpenFunc
}

// Register makes a driver known to Open under a URL scheme. Drivers call it from
// init. It panics if the scheme is already registered.
func Register(scheme string, open OpenFunc) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.schemes[scheme]; taken {
		panic("archive: scheme " + scheme + " is registered twice")
	}
	if registry.schemes == nil {
		registry.schemes = map[string]OpenFunc{}
	}
	registry.schemes[scheme] = open
}

// Open opens the place at a URL: file:DIR, or one whose driver the program imports,
// such as archive/s3archive for s3://BUCKET/PREFIX.
func Open(ctx context.Context, url string) (Place, error) {
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		if strings.ContainsAny(url, "@?") {
			url = "the URL" // it may hold a password
		}
		return nil, fmt.Errorf("%w: %q has no scheme; write it like file:DIR or s3://BUCKET/PREFIX", ErrInvalid, url)
	}
	registry.Lock()
	open, known := registry.schemes[scheme], slices.Sorted(maps.Keys(registry.schemes))
	registry.Unlock()
	if open == nil {
		hint := "import the driver's package to link it"
		if scheme == "s3" {
			hint = `link it with import _ "github.com/perdure/perdure/archive/s3archive"`
		}
		return nil, fmt.Errorf("%w: this program has no place for %q (known here: %s); %s", ErrInvalid, scheme, strings.Join(known, ", "), hint)
	}
	return open(ctx, url)
}
