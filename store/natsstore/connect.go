package natsstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure/store"
)

const connectTimeout = 5 * time.Second

// connect connects within the bounds of ctx.
func connect(ctx context.Context, servers string, opts ...nats.Option) (*nats.Conn, error) {
	wait := connectTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(end)), time.Millisecond)
	}
	opts = append([]nats.Option{
		nats.Name("perdure"), nats.Timeout(wait), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // it would print them; see Store.asynchronous
	}, opts...)
	nc, err := nats.Connect(servers, opts...)
	if err != nil {
		return nil, refused(err)
	}
	return nc, nil
}

// refused returns the error of a connection that could not be made.
func refused(err error) error {
	var alert tls.AlertError
	text := strings.ToLower(err.Error())
	says := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(text, word) {
				return true
			}
		}
		return false
	}
	switch _, bad := errors.AsType[*url.Error](err); {
	case bad: // it has the whole URL in it, with the password
		return unreadable()
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server has no TLS, but the URL asks for it; enable it there, or use nats:// without tls parameters: %w", ErrCertificate, err)
	case errors.As(err, &alert), says("remote error: tls:", "after tls handshake"):
		return fmt.Errorf("%w: the server refuses the certificate of this program, or wants one; name one that it trusts with tls_cert and tls_key in the URL: %w", ErrCertificate, err)
	case isCertificate(err), says("x509:"):
		return fmt.Errorf("%w: the certificate of the server is not trusted here; name the file of its authority with tls_ca in the URL: %w", ErrCertificate, err)
	case errors.Is(err, nats.ErrAuthorization), says("authorization", "authentication"):
		return fmt.Errorf("%w; give the right user and password, token, creds or nkey in the URL: %w", ErrLogin, err)
	case says("unable to extract", "nkeys:", "illegal base32"):
		return fmt.Errorf("%w; the file of creds or nkey holds nothing that can be used: %w", ErrLogin, err)
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("%w; the server does not know nkeys: %w", ErrLogin, err)
	}
	return fmt.Errorf("%w: natsstore: cannot connect to the server: %w", store.ErrUnavailable, err)
}

// isCertificate reports whether the certificate of a server was refused.
func isCertificate(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	return ok || unknown || name
}

// unreadable returns the error of a URL that cannot be used. It has nothing of the URL
// in it, since passwords may be anywhere there.
func unreadable() error {
	return fmt.Errorf("%w: natsstore: the URL cannot be read; write it like nats://user:password@host:4222?replicas=3", store.ErrInvalid)
}

// parse separates the servers in a URL from the parameters of the store and of the
// connection.
func parse(text string, o Options) (servers string, _ Options, opts []nats.Option, err error) {
	servers, query, _ := strings.Cut(text, "?")
	q, err := url.ParseQuery(query)
	if hosts, secure := strings.CutPrefix(servers, "tls://"); secure {
		servers, opts = "nats://"+hosts, append(opts, nats.Secure())
	}
	if err != nil || !strings.HasPrefix(servers, "nats://") {
		return "", o, nil, unreadable()
	}
	for key := range q {
		value := q.Get(key)
		switch key {
		case "stream":
			o.Stream = value
		case "prefix":
			o.Prefix = value
		case "replicas":
			o.Replicas, err = strconv.Atoi(value)
		case "storage":
			if o.Memory = value == "memory"; !o.Memory && value != "file" {
				err = errors.New("use file or memory")
			}
		case "existing":
			o.Existing, err = strconv.ParseBool(value)
		case "system":
			o.System = value
		case "creds":
			if err = readable(value); err == nil {
				opts = append(opts, nats.UserCredentials(value))
			}
		case "nkey":
			var opt nats.Option
			if err = readable(value); err != nil {
				break
			}
			if opt, err = nats.NkeyOptionFromSeed(value); err == nil {
				opts = append(opts, opt)
			} else {
				err = errors.New("the file has no seed of an nkey")
			}
		case "tls":
			var on bool
			if on, err = strconv.ParseBool(value); on {
				opts = append(opts, nats.Secure())
			}
		case "tls_ca":
			if err = readable(value); err == nil {
				opts = append(opts, nats.RootCAs(value))
			}
		case "tls_cert":
			if err = errors.Join(readable(value), readable(q.Get("tls_key"))); err == nil {
				opts = append(opts, nats.ClientCert(value, q.Get("tls_key")))
			}
		case "tls_key":
		default:
			err = errors.New("there is no such parameter")
		}
		if err != nil {
			return "", o, nil, fmt.Errorf("%w: natsstore: %s in the URL: %w", store.ErrInvalid, key, err)
		}
	}
	return servers, o, opts, nil
}

// readable returns an error without the name if a file cannot be read: some put the
// secret itself where the name of its file belongs.
func readable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		return f.Close()
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("it has to name a file that this program can read: %w", err)
}
