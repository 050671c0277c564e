package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

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
// s3://BUCKET/PREFIX names. The bucket must exist. Open writes a few objects to find
// out whether the service checks the conditions of writes, and removes them again.
func Open(ctx context.Context, storeURL string, o Options) (*kvstore.Store, error) {
	name, prefix, o, err := parse(storeURL, o)
	if err != nil {
		return nil, err
	}
	b := &bucket{name: name, prefix: prefix, timeout: o.Timeout}
	if err := b.connect(o); err != nil {
		return nil, err
	}
	if err := b.examine(ctx); err != nil {
		b.idle()
		return nil, err
	}
	b.opened = true
	return kvstore.New(b, kvstore.Options{Durability: store.Power, Pack: segment}), nil
}

// parse splits a URL, and completes o.
func parse(text string, o Options) (name, prefix string, _ Options, err error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format+"; write it like s3://BUCKET/PREFIX?endpoint=https://s3.example&region=eu-west-1", append([]any{store.ErrInvalid}, args...)...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", "", o, invalid("the URL of the bucket cannot be read")
	case u.User != nil:
		return "", "", o, invalid("the URL of bucket %s holds keys, which would end up in logs; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead", u.Host)
	case u.Host == "" || u.Port() != "" || u.Fragment != "":
		return "", "", o, invalid("the URL names no bucket")
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return "", "", o, invalid("%q cannot be the name of a bucket: %v", u.Host, err)
	}
	for key, values := range u.Query() {
		switch key {
		case "endpoint":
			o.Endpoint = values[0]
		case "region":
			o.Region = values[0]
		default:
			return "", "", o, invalid("the URL of bucket %s has an unknown parameter %q", u.Host, key)
		}
	}
	if prefix = strings.Trim(u.Path, "/"); prefix != "" {
		prefix += "/"
	}
	if len(prefix) > maxPrefix {
		return "", "", o, invalid("the prefix in bucket %s has %d bytes, but at most %d leave room for names", u.Host, len(prefix), maxPrefix)
	}
	for _, part := range strings.Split(strings.TrimSuffix(prefix, "/"), "/") {
		if prefix != "" && (part == "" || part == "." || part == "..") {
			return "", "", o, invalid("the prefix %q has a part that is empty or a dot", prefix)
		}
	}
	if o.Endpoint == "" {
		o.Endpoint = os.Getenv("AWS_ENDPOINT_URL")
	}
	if o.Region == "" {
		o.Region = os.Getenv("AWS_REGION")
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	return u.Host, prefix, o, nil
}

const amazon = "https://s3.amazonaws.com"

// connect makes the clients of the service. It does not call the service.
func (b *bucket) connect(o Options) error {
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = amazon
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%w: the endpoint cannot be read, or holds more than an address; write it like https://s3.example, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", store.ErrInvalid)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("%w: the endpoint %q is not the URL of a service; write it like https://s3.example", store.ErrInvalid, endpoint)
	}
	keys := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if endpoint == amazon {
		keys = append(keys, &credentials.IAM{})
	}
	if o.AccessKey != "" {
		keys = []credentials.Provider{&credentials.Static{Value: credentials.Value{
			AccessKeyID: o.AccessKey, SecretAccessKey: o.SecretKey, SessionToken: o.SessionToken, SignerType: credentials.SignatureV4,
		}}}
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return fmt.Errorf("s3store: %w", err)
	}
	transport.ResponseHeaderTimeout = b.timeout
	transport.MaxIdleConnsPerHost = 4 * readAhead
	b.idle = transport.CloseIdleConnections
	chain := credentials.NewChainCredentials(keys) // one for both clients: its lock guards the providers
	client := func(tries int) (*minio.Core, error) {
		return minio.NewCore(u.Host, &minio.Options{
			Creds:      chain,
			Secure:     u.Scheme == "https",
			Region:     o.Region,
			Transport:  transport,
			MaxRetries: tries,
		})
	}
	if b.reads, err = client(repeats); err == nil {
		b.writes, err = client(1)
	}
	if err != nil {
		return fmt.Errorf("%w: s3store: %w", store.ErrInvalid, err)
	}
	return nil
}

// examine finds out whether the bucket can hold a store, with an object of its own
// that no other process uses.
func (b *bucket) examine(ctx context.Context) (err error) {
	key := "o-" + strings.ToLower(rand.Text())
	first, err := b.put(ctx, key, []byte("one"), "")
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: it refuses a new object: %w", ErrUnsuited, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.remove(ctx, key)) }()
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
