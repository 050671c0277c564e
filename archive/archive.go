// Package archive keeps threads outside the store, in a folder or a bucket, one
// object for each. It imports nothing but the standard library; places other than
// a folder are drivers of their own, linked by those who import them.
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
// dashes and single slashes. Its methods may be called at the same time, also for
// the same name.
type Place interface {
	// Put writes an object, of at least a byte, and replaces one with that name. When it returns nil,
	// the object is there to stay. After an error there is the whole new object,
	// the whole old one, or none, but never a part. An error of the place, not of r, is
	// ErrFull or ErrUnavailable, also that of other methods.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get returns the content of an object. The error, also one of reading, is
	// ErrNotFound if there is none, and ErrThawing if it cannot be read yet.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List yields the names that begin with prefix and come after the given one,
	// in bytewise order.
	List(ctx context.Context, prefix, after string) iter.Seq2[string, error]
	// Delete deletes an object for good, whether there is one or not, and what a Put
	// of it that was killed has left. With the last object of a folder, the name up to
	// its last slash, goes what any Put that was killed has left there. It does not
	// disturb others that write to a folder with more objects.
	Delete(ctx context.Context, name string) error
	// URL names the place for people, without secrets.
	URL() string
}

// A Freezer is a Place with objects that cannot be read at once. Put writes such
// that can; Freeze is called when one has been read back and checked, and moves it to
// where it stays.
type Freezer interface {
	Freeze(ctx context.Context, name string) error
}

// Identified is implemented by a Place that can be told from another with the same URL,
// such as a mount point without its disk. An object that is not there was deleted only if
// the place is the one that it was written to.
type Identified interface {
	// ID returns a text that no other place has; "" if that is not known, or if the place
	// is not in use yet.
	ID() string
	// Begin gives the place an ID, unless it has one. It is called before anything is put
	// there, if nothing says that the place is another one than it should be.
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
