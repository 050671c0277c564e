package upstashstore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

func init() {
	store.Register("upstash", func(ctx context.Context, url string) (store.Store, error) { return Open(ctx, url, Options{}) })
}

// Options configures Open. Parameters in the URL take precedence.
type Options struct {
	// Token lets the store in; "" means $UPSTASH_REDIS_REST_TOKEN.
	Token string

	// Prefix is the name of the store, ?prefix= in the URL; "" means perdure. All
	// its keys begin with it. A database can hold several stores.
	Prefix string

	// Existing makes Open return ErrNoStore instead of creating a store,
	// ?existing=true in the URL.
	Existing bool

	// Timeout bounds each request. After it a write may or may not have taken
	// effect. 0 means 15 seconds.
	Timeout time.Duration
}

// pack is the size up to which appends are collected in one value: see the package
// comment. In base64, with the largest entry, it stays well below 1 MB, which is the
// smallest limit of a request that Upstash documents.
const pack = 64 << 10

var prefixName = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{1,48}$`)

// Open opens the store that a URL of the form upstash://HOST names, and creates it if
// it does not exist.
func Open(ctx context.Context, storeURL string, o Options) (*kvstore.Store, error) {
	endpoint, o, err := parse(storeURL, o)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost = 16
	d := &database{
		endpoint: endpoint,
		token:    o.Token,
		timeout:  o.Timeout,
		tag:      "{" + o.Prefix + "}:",
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is for this host
		}},
	}
	if err := d.settle(ctx, o.Existing); err != nil {
		d.client.CloseIdleConnections()
		return nil, err
	}
	return kvstore.New(d, kvstore.Options{Pack: pack}), nil
}

// parse returns the address of the REST API, and completes o.
func parse(text string, o Options) (endpoint string, _ Options, err error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: upstashstore: "+format+"; write it like upstash://HOST?prefix=NAME", append([]any{store.ErrInvalid}, args...)...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", o, invalid("the URL of the database cannot be read")
	case u.User != nil:
		return "", o, invalid("the URL of %s holds a token, which would end up in logs; set UPSTASH_REDIS_REST_TOKEN instead", u.Host)
	case u.Host == "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "":
		return "", o, invalid("%q does not name a host and nothing else", text)
	}
	secure := true
	for key, values := range u.Query() {
		switch key {
		case "prefix":
			o.Prefix = values[0]
		case "tls":
			secure, err = strconv.ParseBool(values[0])
		case "existing":
			o.Existing, err = strconv.ParseBool(values[0])
		default:
			return "", o, invalid("the URL of %s has an unknown parameter %q", u.Host, key)
		}
		if err != nil {
			return "", o, invalid("%s=%s in the URL; use true or false", key, values[0])
		}
	}
	if o.Prefix == "" {
		o.Prefix = "perdure"
	}
	if !prefixName.MatchString(o.Prefix) {
		return "", o, invalid("%q cannot be a prefix; use up to 48 letters, digits and the characters _ . : -", o.Prefix)
	}
	if o.Token == "" {
		o.Token = os.Getenv("UPSTASH_REDIS_REST_TOKEN")
	}
	if o.Token == "" {
		return "", o, fmt.Errorf("%w: there is none; set UPSTASH_REDIS_REST_TOKEN to that of the database", ErrToken)
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if secure {
		return "https://" + u.Host, o, nil
	}
	return "http://" + u.Host, o, nil
}

// currentFormat is the format of the stores that this package makes.
const currentFormat = 1

// openScript returns the content of the format key, which it creates if there is
// neither that nor anything else of a store.
//
// KEYS: format, index. ARGV: the content of a new format key, "" to create none.
const openScript = `
local format = redis.call('GET', KEYS[1])
if format then return {'found', format} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'lost'} end
if ARGV[1] == '' then return {'none'} end
redis.call('SET', KEYS[1], ARGV[1])
return {'found', ARGV[1]}
`

// settle finds the store, or creates it.
func (d *database) settle(ctx context.Context, existing bool) error {
	answer, err := d.do(ctx, "INFO", "memory")
	if info, ok := answer.(string); ok {
		_, policy, _ := strings.Cut(info, "maxmemory_policy:")
		if policy, _, _ = strings.Cut(policy, "\n"); policy != "" && strings.TrimSpace(policy) != "noeviction" {
			return fmt.Errorf("%w: its maxmemory_policy is %s; turn eviction off, or use a database that is not a cache", ErrEvicts, strings.TrimSpace(policy))
		}
	}
	if err != nil && !errors.Is(err, errRefused) { // the service need not know the command
		return err
	}
	format := fmt.Sprintf("%d %s", currentFormat, rand.Text())
	if existing {
		format = ""
	}
	said, err := d.eval(ctx, openScript, []string{d.tag + "format", d.tag + "index"}, format)
	if err != nil {
		return err
	}
	if said[0] == "none" {
		return fmt.Errorf("%w: no key begins with %s; check the name, which is perdure unless the URL sets ?prefix=", ErrNoStore, d.tag)
	}
	if said[0] == "lost" || len(said) != 2 {
		return &store.CorruptError{Where: "key " + d.tag + "format", Reason: "it is missing, though the database has the rest of a store"}
	}
	number, id, _ := strings.Cut(said[1], " ")
	switch n, err := strconv.Atoi(number); {
	case err != nil || id == "":
		return fmt.Errorf("%w: upstashstore: the key %sformat is another program's; choose another prefix with ?prefix=", store.ErrForeign, d.tag)
	case n > currentFormat:
		return fmt.Errorf("%w: upstashstore: the store has format %d, and this binary knows formats up to %d; use a newer one", store.ErrNewer, n, currentFormat)
	}
	d.id = said[1]
	return nil
}
