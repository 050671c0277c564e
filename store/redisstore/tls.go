package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/perdure/perdure/store"
)

// secure adds the files that a URL names to the settings of TLS, which are nil for a URL
// without TLS.
func secure(config *tls.Config, q url.Values) error {
	ca, cert, key := q.Get("ca"), q.Get("cert"), q.Get("key")
	switch {
	case ca == "" && cert == "" && key == "":
		return nil
	case config == nil:
		return fmt.Errorf("%w: redisstore: the URL names certificates and begins with redis:; write rediss: for TLS", store.ErrInvalid)
	case (cert == "") != (key == ""):
		return fmt.Errorf("%w: redisstore: a client's certificate needs both cert= and key= in the URL", store.ErrInvalid)
	}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("%w: redisstore: ca= in the URL: %w", store.ErrInvalid, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%w: redisstore: %s, which ca= in the URL names, has no certificate in PEM", store.ErrInvalid, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("%w: redisstore: cert= and key= in the URL: %w", store.ErrInvalid, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// towards returns the settings of TLS for a server.
func towards(address string, config *tls.Config) *tls.Config {
	config = config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	return config
}

// unwelcome returns an error if a server refuses what TLS tells it of the client. It only
// listens: with TLS 1.3 the refusal comes after the handshake, and is lost if the client
// writes when the server has gone.
func unwelcome(ctx context.Context, address string, config *tls.Config) error {
	conn, err := (&tls.Dialer{Config: towards(address, config)}).DialContext(ctx, "tcp", address)
	if err == nil {
		defer conn.Close()
		if end, ok := ctx.Deadline(); ok {
			_ = conn.SetReadDeadline(end)
		}
		_, err = conn.Read(make([]byte, 1))
	}
	if why := insecure(err); why != "" {
		return fmt.Errorf("%w: redisstore: %s: %w", store.ErrInvalid, why, err)
	}
	return nil
}

// insecure says why a connection with TLS failed, if that is what err is about.
func insecure(err error) string {
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &untrusted):
		return "the server's certificate is not trusted; name the server as the certificate does, and trust its authority, with &ca=FILE in the URL or on this machine"
	case errors.As(err, &plain):
		return "the server does not speak TLS on this port; use its other port, or redis: instead of rediss: in the URL"
	case errors.As(err, &remote) && remote.Op == "remote error":
		return "the server refuses the connection; it may want a client's certificate, with &cert=FILE&key=FILE in the URL"
	}
	return ""
}
