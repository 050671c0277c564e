package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// OpenFunc opens the store at a URL, which includes the scheme.
type OpenFunc func(ctx context.Context, url string) (Store, error)

var registry struct {
	sync.Mutex
	schemes map[string]OpenFunc
}

// Register makes a driver known to Open under a URL scheme. Drivers call it
// from init. It panics if the scheme is already registered.
func Register(scheme string, open OpenFunc) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.schemes[scheme]; taken {
		panic("store: scheme " + scheme + " is registered twice")
	}
	if registry.schemes == nil {
		registry.schemes = map[string]OpenFunc{}
	}
	registry.schemes[scheme] = open
}

// An OpenOption changes what Open accepts.
type OpenOption func(*openOptions)

type openOptions struct{ require Durability }

// Require makes Open refuse a store less durable than d with ErrWeak.
func Require(d Durability) OpenOption {
	return func(o *openOptions) { o.require = d }
}

// Open opens the store at url with the driver registered for its scheme, as in
// "memory:", "file:DIR", "sqlite:FILE", "postgres://HOST/DATABASE", "redis://HOST",
// "nats://HOST", "s3://BUCKET/PREFIX" and "upstash://HOST". The program has to import
// the driver's package; one that knows its driver can call the driver's own constructor
// instead.
func Open(ctx context.Context, url string, opts ...OpenOption) (Store, error) {
	var o openOptions
	for _, opt := range opts {
		opt(&o)
	}
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		if strings.ContainsAny(url, "@?") {
			url = "the URL" // it may hold a password
		}
		return nil, fmt.Errorf("%w: %q has no scheme; write it like sqlite:app.db (known here: %s)", ErrScheme, url, known())
	}
	registry.Lock()
	open := registry.schemes[scheme]
	registry.Unlock()
	if open == nil {
		return nil, fmt.Errorf("%w: this program has no driver for %q (known here: %s); %s", ErrScheme, scheme, known(), toLink(scheme))
	}
	s, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	if got := DurabilityOf(s); got < o.require {
		s.Close()
		return nil, fmt.Errorf("%w: the %s store survives %s, but %s was required; %s", ErrWeak, scheme, got.survives(), o.require, weakness(s))
	}
	return s, nil
}

// drivers are the packages of this module that register schemes.
var drivers = map[string]string{
	"memory": "memstore", "file": "filestore", "sqlite": "sqlitestore", "postgres": "pgstore", "postgresql": "pgstore",
	"redis": "redisstore", "rediss": "redisstore", "nats": "natsstore", "s3": "s3store", "upstash": "upstashstore",
}

// toLink says how a program gets the driver of a scheme.
func toLink(scheme string) string {
	if driver := drivers[scheme]; driver != "" {
		return fmt.Sprintf("link it with import _ \"github.com/perdure/perdure/store/%s\"", driver)
	}
	if scheme == "cluster" {
		return "use the program perdure-cluster, which has it"
	}
	return "import the driver's package to link it"
}

func known() string {
	registry.Lock()
	defer registry.Unlock()
	if len(registry.schemes) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(registry.schemes)), ", ")
}
