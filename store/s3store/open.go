package s3store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perdure/perdure/internal/s3url"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

func init() {
	store.Register("s3", func(ctx context.Context, url string) (store.Store, error) { return Open(ctx, url, Options{}) })
}

// Options configures Open. Parameters in the URL take precedence.
type Options struct {
	// Endpoint is the URL of the service, ?endpoint= in the URL of the store,
	// such as https://s3.example; "" means $AWS_ENDPOINT_URL, or Amazon S3.
	Endpoint string

	// Region is the region of the bucket, ?region= in the URL; "" means
	// $AWS_REGION or, without it, that the service is asked.
	Region string

	// AccessKey, SecretKey and SessionToken identify the user. If they are empty,
	// the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN
	// do, then ~/.aws/credentials, and then, on Amazon S3, the role of the machine.
	AccessKey, SecretKey, SessionToken string

	// Timeout bounds each request. After it a write may or may not have taken
	// effect. 0 means 15 seconds.
	Timeout time.Duration

	// Existing makes Open return ErrNoStore instead of creating a store,
	// ?existing=true in the URL.
	Existing bool
}

// segment is the size up to which the entries of a journal are collected in one
// object: see the package comment.
const segment = 256 << 10

// maxPrefix is the length up to which a prefix leaves room for the longest key within
// the 1024 bytes that S3 allows.
const maxPrefix = 1024 - kvstore.MaxKey - len(joint)*(kvstore.MaxKey/piece)

// repeats is how often a read is tried while the service answers with an error that
// may pass.
const repeats = 4

// Open opens the store in the bucket and prefix that a URL of the form
// s3://BUCKET/PREFIX names. The bucket must exist. Open writes, lists, reads and removes
// an object of its own to find out whether the keys have all permissions, and whether the
// service checks the conditions of writes.
func Open(ctx context.Context, storeURL string, o Options) (*kvstore.Store, error) {
	b := &bucket{}
	existing, err := b.connect(storeURL, o)
	if err != nil {
		return nil, err
	}
	if existing {
		err = b.expect(ctx)
	}
	if err == nil {
		err = b.examine(ctx)
	}
	if err != nil {
		b.idle()
		return nil, err
	}
	b.opened = true
	return kvstore.New(b, kvstore.Options{Durability: store.Power, Pack: segment}), nil
}

// connect reads a URL, and makes the clients of its service. It does not call it. It
// reports whether the store has to exist.
func (b *bucket) connect(text string, o Options) (existing bool, err error) {
	exists := strconv.FormatBool(o.Existing)
	at, err := s3url.Parse(text, maxPrefix, map[string]*string{"endpoint": &o.Endpoint, "region": &o.Region, "existing": &exists})
	if err != nil {
		return false, fmt.Errorf("%w: %w; write it like s3://BUCKET/PREFIX?endpoint=https://s3.example&region=eu-west-1", store.ErrInvalid, err)
	}
	if existing, err = strconv.ParseBool(exists); err != nil {
		return false, fmt.Errorf("%w: s3store: existing=%s in the URL; use true or false", store.ErrInvalid, exists)
	}
	b.name, b.prefix, b.timeout = at.Bucket, at.Prefix, cmp.Or(o.Timeout, 15*time.Second)
	service, err := s3url.Service{Endpoint: o.Endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken}.Address()
	if err != nil {
		return false, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	transport, err := minio.DefaultTransport(service.Secure)
	if err != nil {
		return false, fmt.Errorf("s3store: %w", err)
	}
	transport.ResponseHeaderTimeout = b.timeout
	transport.MaxIdleConnsPerHost = 4 * readAhead
	b.idle = transport.CloseIdleConnections
	client := func(tries int) (*minio.Core, error) {
		return minio.NewCore(service.Host, &minio.Options{
			Creds:      service.Keys, // those of both clients: their lock guards the providers
			Secure:     service.Secure,
			Region:     service.Region,
			Transport:  transport,
			MaxRetries: tries,
		})
	}
	if b.reads, err = client(repeats); err == nil {
		b.writes, err = client(1)
	}
	if err != nil {
		return false, fmt.Errorf("%w: s3store: %w", store.ErrInvalid, err)
	}
	return existing, nil
}

// probe begins the keys of the objects that examine uses.
const probe = "o-"

// expect returns an error if there is no store.
func (b *bucket) expect(ctx context.Context) error {
	keys, next, err := b.page(ctx, "", "")
	if err != nil {
		return err
	}
	if next == "" && !slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, probe) }) {
		return fmt.Errorf("%w in bucket %s under %q; check the prefix in the URL", ErrNoStore, b.name, b.prefix)
	}
	return nil
}

// examine finds out whether the bucket can hold a store, with an object of its own
// that no other process uses.
func (b *bucket) examine(ctx context.Context) (err error) {
	key := probe + strings.ToLower(rand.Text())
	first, err := b.put(ctx, key, []byte("one"), "")
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: it refuses a new object: %w", ErrUnsuited, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.remove(ctx, key)) }()
	// Without the right to list, a service says of a missing object that it is denied.
	if _, _, err := b.page(ctx, key, ""); err != nil {
		return err
	}
	if _, err := b.get(ctx, key); err != nil {
		return err
	}
	if v := first.VersionID; v != "" && v != "null" {
		return fmt.Errorf("%w: versioning is enabled for bucket %s, or an object lock; use a bucket without them, or suspend versioning", ErrVersioned, b.name)
	}
	_, err = b.put(ctx, key, []byte("two"), store.Version(first.ETag))
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: it refuses to replace an object: %w", ErrUnsuited, err)
	}
	if err != nil {
		return err
	}
	for condition, prev := range map[string]store.Version{"If-None-Match": "", "If-Match": store.Version(first.ETag)} {
		_, err := b.put(ctx, key, []byte("three"), prev)
		if err == nil {
			return fmt.Errorf("%w: it ignores %s and overwrites an object; use another service", ErrUnsuited, condition)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
