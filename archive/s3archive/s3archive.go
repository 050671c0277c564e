// Package s3archive keeps archived threads in a bucket of Amazon S3 or a service
// that speaks its protocol. Importing it makes [archive.Open] know URLs of the form
//
//	s3://BUCKET/PREFIX?endpoint=https://s3.example&region=eu-west-1&class=GLACIER
//
// Keys are taken from the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN, then from ~/.aws/credentials, and then, on Amazon S3, from the
// role of the machine. They need s3:PutObject, s3:GetObject and s3:DeleteObject on
// the prefix, and s3:ListBucket on the bucket.
//
// With the classes GLACIER and DEEP_ARCHIVE an object has to be thawed before it can
// be read: reading it returns [archive.ErrThawing], which names the command for that. An
// object is written in the bucket's own class, read back, and then copied to such a
// class by the service.
//
// Deleted objects stay in a bucket that keeps versions: a lifecycle rule has to
// remove those. It may import package archive and minio-go.
package s3archive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/s3url"
)

func init() {
	archive.Register("s3", func(ctx context.Context, url string) (archive.Place, error) { return Open(ctx, url, Options{}) })
}

// Options configures Open. Parameters in the URL take precedence.
type Options struct {
	// Endpoint is the URL of the service, ?endpoint= in the URL of the place; ""
	// means $AWS_ENDPOINT_URL, or Amazon S3.
	Endpoint string
	// Region is the region of the bucket, ?region= in the URL; "" means $AWS_REGION
	// or, without it, that the service is asked.
	Region string
	// Class is the storage class of new objects, ?class= in the URL; "" means that
	// of the bucket.
	Class string
	// AccessKey, SecretKey and SessionToken identify the user, see the package
	// comment for the defaults.
	AccessKey, SecretKey, SessionToken string
	// Patience is how long the service may be silent before a request fails with
	// archive.ErrUnavailable; 0 means 30 seconds. Copying an object may take ten times
	// as long.
	Patience time.Duration
}

// partSize is the size of the parts in which larger objects are sent.
const partSize = 16 << 20

// Open returns the place in a bucket under a prefix, which a URL names. It asks the
// service whether the bucket exists. If there is none, or the keys may not list it, the
// error is archive.ErrInvalid; if the service does not answer, archive.ErrUnavailable.
func Open(ctx context.Context, placeURL string, o Options) (archive.Place, error) {
	b := &bucket{refused: archive.ErrInvalid}
	if err := b.connect(placeURL, o); err != nil {
		return nil, err
	}
	for _, err := range b.List(ctx, "", "") { // one that is missing, or keys that may not, show here
		if err != nil {
			return nil, err
		}
		break
	}
	b.refused = archive.ErrUnavailable
	return b, nil
}

// cold are the classes whose objects have to be thawed.
var cold = []string{"GLACIER", "DEEP_ARCHIVE"}

// bucket is the part of a bucket under a prefix.
type bucket struct {
	name, prefix, class string
	client              *minio.Client
	patience            time.Duration
	refused             error // what it is if there is no bucket, or the keys are not the right ones
}

var (
	_ archive.Place   = (*bucket)(nil)
	_ archive.Freezer = (*bucket)(nil)
)

// maxPrefix is the maximum length of a prefix.
const maxPrefix = 501

// connect reads a URL, and makes the client of its service. It does not call it.
func (b *bucket) connect(text string, o Options) error {
	at, err := s3url.Parse(text, maxPrefix, map[string]*string{"endpoint": &o.Endpoint, "region": &o.Region, "class": &o.Class})
	if err != nil {
		return fmt.Errorf("%w: %w; write it like s3://BUCKET/PREFIX?endpoint=https://s3.example&region=eu-west-1&class=STANDARD_IA", archive.ErrInvalid, err)
	}
	b.name, b.prefix, b.class, b.patience = at.Bucket, at.Prefix, o.Class, cmp.Or(o.Patience, defaultPatience)
	service, err := s3url.Service{Endpoint: o.Endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken}.Address()
	var transport *http.Transport
	if err == nil {
		transport, err = minio.DefaultTransport(service.Secure)
	}
	if err == nil {
		transport.ResponseHeaderTimeout = 0 // see silence.go
		b.client, err = minio.New(service.Host, &minio.Options{Creds: service.Keys, Secure: service.Secure, Region: service.Region, MaxRetries: 4, Transport: watched{transport}})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", archive.ErrInvalid, err)
	}
	return nil
}

// URL returns the URL of the place, without its parameters.
func (b *bucket) URL() string { return "s3://" + b.name + "/" + strings.TrimSuffix(b.prefix, "/") }

// Put sends an object in one request or, if it is large, in parts; then it appears
// with the last request.
func (b *bucket) Put(ctx context.Context, name string, r io.Reader) error {
	if err := archive.CheckName(name); err != nil {
		return err
	}
	ctx, end := b.begin(ctx, 1)
	defer end()
	options := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	if !slices.Contains(cold, b.class) { // else Freeze sets it
		options.StorageClass = b.class
	}
	part, last, err := readPart(r, make([]byte, partSize))
	switch {
	case err != nil:
		return fmt.Errorf("s3archive: writing %s: %w", name, err)
	case !last:
		return b.putParts(ctx, name, part, r, options)
	}
	sum, hash := sums(part)
	_, err = b.core().PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(part), int64(len(part)), sum, hash, options)
	return b.failed(ctx, "write", name, err)
}

func (b *bucket) core() minio.Core { return minio.Core{Client: b.client} }

// readPart fills the buffer, and reports whether the reader has ended.
func readPart(r io.Reader, buf []byte) (part []byte, last bool, err error) {
	n, err := io.ReadFull(r, buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return buf[:n], true, nil
	}
	return buf[:n], false, err
}

// sums returns the hashes by which the service notices damage on the way.
func sums(data []byte) (sum, hash string) {
	m, h := md5.Sum(data), sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(h[:])
}

// putParts sends an object in parts, of which the first is known.
func (b *bucket) putParts(ctx context.Context, name string, part []byte, r io.Reader, options minio.PutObjectOptions) (err error) {
	key := b.prefix + name
	id, err := b.core().NewMultipartUpload(ctx, b.name, key, options)
	if err != nil {
		return b.failed(ctx, "write", name, err)
	}
	defer func() {
		if err != nil && !errors.Is(context.Cause(ctx), errSilent) {
			ctx, end := b.begin(context.WithoutCancel(ctx), 1)
			defer end()
			err = errors.Join(err, b.failed(ctx, "clear an upload of", name, b.core().AbortMultipartUpload(ctx, b.name, key, id)))
		}
	}()
	var parts []minio.CompletePart
	for last := false; ; {
		sum, hash := sums(part)
		sent, err := b.core().PutObjectPart(ctx, b.name, key, id, len(parts)+1, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{Md5Base64: sum, Sha256Hex: hash, DisableContentSha256: true})
		if err != nil {
			return b.failed(ctx, "write", name, err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: sent.PartNumber, ETag: sent.ETag})
		if last {
			break
		}
		if part, last, err = readPart(r, part[:partSize]); err != nil {
			return fmt.Errorf("s3archive: writing %s: %w", name, err)
		}
		if len(part) == 0 {
			break
		}
	}
	ctx, end := b.begin(ctx, slowly)
	defer end()
	_, err = b.core().CompleteMultipartUpload(ctx, b.name, key, id, parts, options)
	return b.failed(ctx, "write", name, err)
}

// Freeze has the service copy an object to a cold class, if that is the place's.
func (b *bucket) Freeze(ctx context.Context, name string) error {
	if err := archive.CheckName(name); err != nil || !slices.Contains(cold, b.class) {
		return err
	}
	ctx, end := b.begin(ctx, slowly)
	defer end()
	key := b.prefix + name
	_, err := b.core().CopyObject(ctx, b.name, key, b.name, key, map[string]string{
		"X-Amz-Storage-Class": b.class, "X-Amz-Metadata-Directive": "REPLACE", "Content-Type": "application/octet-stream",
	}, minio.CopySrcOptions{}, minio.PutObjectOptions{})
	return b.failed(ctx, "freeze", name, err)
}

// Get opens an object.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := archive.CheckName(name); err != nil {
		return nil, err
	}
	ctx, end := b.begin(ctx, 1)
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err == nil {
		_, err = o.Stat() // the request is made here
	}
	if err != nil {
		defer end()
		return nil, b.missing(ctx, name, b.failed(ctx, "read", name, err))
	}
	return &object{o, b, name, ctx, end}, nil
}

// missing returns the error of reading an object. If it says that there is none, that is
// true only if there is a bucket, which this request does not tell.
func (b *bucket) missing(ctx context.Context, name string, err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		for _, listErr := range b.List(ctx, name, "") {
			if listErr != nil {
				return listErr
			}
			break
		}
	}
	return err
}

// object reads an object.
type object struct {
	*minio.Object
	bucket *bucket
	name   string
	ctx    context.Context
	end    func()
}

func (o *object) Close() error {
	defer o.end()
	return o.Object.Close()
}

func (o *object) Read(p []byte) (int, error) {
	n, err := o.Object.Read(p)
	if err != nil && err != io.EOF {
		err = o.bucket.failed(o.ctx, "read", o.name, err)
	}
	return n, err
}

// List yields the names of objects.
func (b *bucket) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, end := b.begin(ctx, 1)
		defer end()
		options := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}
		if after != "" {
			options.StartAfter = b.prefix + after
		}
		for o := range b.client.ListObjectsIter(ctx, b.name, options) {
			if o.Err != nil {
				yield("", b.failed(ctx, "list", prefix, o.Err))
				return
			}
			name := strings.TrimPrefix(o.Key, b.prefix)
			if archive.CheckName(name) == nil && name > after && !yield(name, nil) {
				return
			}
		}
	}
}

// Delete deletes an object, and the parts of uploads that were cut off.
func (b *bucket) Delete(ctx context.Context, name string) error {
	if err := archive.CheckName(name); err != nil {
		return err
	}
	ctx, end := b.begin(ctx, 1)
	defer end()
	folder := b.prefix + name[:strings.LastIndexByte(name, '/')+1]
	for up := range b.client.ListIncompleteUploads(ctx, b.name, folder, true) {
		if noUploads(up.Err) {
			break
		}
		if up.Err != nil {
			return b.failed(ctx, "list the uploads of", name, up.Err)
		}
		if err := b.client.RemoveIncompleteUpload(ctx, b.name, up.Key); err != nil {
			return b.failed(ctx, "delete an upload of", name, err)
		}
	}
	return b.failed(ctx, "delete", name, b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
}

// noUploads reports whether an error says that there are no uploads, or that the
// service does not tell.
func noUploads(err error) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && (r.Code == "NoSuchUpload" || r.Code == "NotImplemented")
}

// failed returns the error of a request, nil if there is none.
func (b *bucket) failed(ctx context.Context, doing, name string, err error) error {
	name = cmp.Or(name, "objects")
	var r minio.ErrorResponse
	errors.As(err, &r)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("%w: s3archive: cannot %s %s in %s: %w", archive.ErrUnavailable, doing, name, b.URL(), errSilent)
	case r.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %s in %s", archive.ErrNotFound, name, b.URL())
	case r.Code == "InvalidObjectState":
		return fmt.Errorf("%w: %s in %s is in cold storage; ask for it with aws s3api restore-object --bucket %s --key %s --restore-request Days=7 and try again when it is there, which takes minutes to two days", archive.ErrThawing, name, b.URL(), b.name, b.prefix+name)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("s3archive: %s %s: %w", doing, name, err)
	case r.Code == minio.NoSuchBucket:
		return fmt.Errorf("%w: s3archive: there is no bucket %s; create it, or name another one: %w", b.refused, b.name, err)
	case r.StatusCode == 401 || r.StatusCode == 403:
		return fmt.Errorf("%w: s3archive: the service does not let these keys %s %s; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the region, and that they have s3:PutObject, s3:GetObject and s3:DeleteObject on %s* and s3:ListBucket on the bucket (%s): %w", b.refused, doing, name, b.name+"/"+b.prefix, r.Code, err)
	}
	return fmt.Errorf("%w: s3archive: cannot %s %s in %s: %w", archive.ErrUnavailable, doing, name, b.URL(), err)
}
