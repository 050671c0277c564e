package natsstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

// login is a way to open a store, and what comes of it.
type login struct {
	name, scheme, user string
	params             []string
	want               error
	says               string
}

// try opens stores on a server. No error has a secret in it.
func try(t *testing.T, server *natstest.Node, logins []login) {
	for _, l := range logins {
		t.Run(l.name, func(t *testing.T) {
			url := fmt.Sprintf("%s://%s127.0.0.1:%d", l.scheme, l.user, server.Port)
			for i := 0; i < len(l.params); i += 2 {
				url = natstest.With(url, l.params[i], l.params[i+1])
			}
			s, err := store.Open(t.Context(), url)
			if err == nil {
				defer s.Close()
				_, err = store.AppendOnce(t.Context(), s, l.name, 0, []byte("x"))
			}
			if !errors.Is(err, l.want) {
				t.Fatalf("Open = %v, want %v", err, l.want)
			}
			if err != nil && !strings.Contains(err.Error(), l.says) {
				t.Errorf("the error does not say %q: %v", l.says, err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error gives the secret away: %v", err)
			}
		})
	}
}

// TestTLS connects to a server that wants certificates, users and nkeys.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, theirs := authority(t, dir, "ours"), authority(t, dir, "theirs")
	ours("server")
	ours("client")
	theirs("stranger")
	file := func(name string) string { return filepath.Join(dir, name) }
	known := nkey(t, dir, "known")
	nkey(t, dir, "unknown")
	server := natstest.Start(t, natstest.Config{Settings: fmt.Sprintf(`
		tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }
		accounts {
			SYS { users: [ { user: system, password: s3cret } ] }
			APP { jetstream: enabled, users: [ { user: app, password: s3cret }, { nkey: %s } ] }
			BARE { users: [ { user: bare, password: s3cret } ] }
		}
		system_account: SYS`, file("server.pem"), file("server.key"), file("ours.pem"), known)})
	trust := []string{"tls_ca", file("ours.pem"), "tls_cert", file("client.pem"), "tls_key", file("client.key")}
	with := func(params ...string) []string { return append(params, trust...) }
	try(t, server, []login{
		{name: "password", scheme: "tls", user: "app:s3cret@", params: trust},
		{name: "the server asks for TLS", scheme: "nats", user: "app:s3cret@", params: trust},
		{name: "nkey", scheme: "tls", params: with("nkey", file("known.nk"))},
		{name: "a wrong password", scheme: "tls", user: "app:s3cret2@", params: trust, want: natsstore.ErrLogin, says: "password"},
		{name: "no user", scheme: "tls", params: trust, want: natsstore.ErrLogin, says: "password"},
		{name: "a token", scheme: "tls", user: "s3cret@", params: trust, want: natsstore.ErrLogin, says: "token"},
		{name: "an unknown nkey", scheme: "tls", params: with("nkey", file("unknown.nk")), want: natsstore.ErrLogin, says: "nkey"},
		{name: "a seed for its file", scheme: "tls", params: with("nkey", "s3cret"), want: store.ErrInvalid, says: "file"},
		{name: "a file without a seed", scheme: "tls", params: with("nkey", file("ours.pem")), want: store.ErrInvalid, says: "seed"},
		{name: "no JetStream in the account", scheme: "tls", user: "bare:s3cret@", params: trust, want: natsstore.ErrNoJetStream, says: "account"},
		{name: "an authority that nobody knows", scheme: "tls", user: "app:s3cret@", want: natsstore.ErrCertificate, says: "tls_ca"},
		{name: "another authority", scheme: "tls", user: "app:s3cret@", params: []string{"tls_ca", file("theirs.pem")}, want: natsstore.ErrCertificate, says: "tls_ca"},
		{name: "no certificate", scheme: "tls", user: "app:s3cret@", params: []string{"tls_ca", file("ours.pem")}, want: natsstore.ErrCertificate, says: "tls_cert"},
		{name: "a stranger's certificate", scheme: "tls", user: "app:s3cret@", params: []string{"tls_ca", file("ours.pem"), "tls_cert", file("stranger.pem"), "tls_key", file("stranger.key")}, want: natsstore.ErrCertificate, says: "tls_cert"},
		{name: "no key", scheme: "tls", params: []string{"tls_cert", file("client.pem")}, want: store.ErrInvalid, says: "tls_cert"},
	})
	try(t, natstest.Start(t, natstest.Config{}), []login{
		{name: "a server without TLS", scheme: "tls", want: natsstore.ErrCertificate, says: "no TLS"},
	})
}

// TestCredentials connects with files of credentials, which a server checks by the key
// of its operator.
func TestCredentials(t *testing.T) {
	t.Parallel()
	pair := func(kp nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		public, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return kp, public
	}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		text, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operator, operatorID := pair(nkeys.CreateOperator())
	dir, settings := t.TempDir(), ""
	account := func(name string, limits jwt.JetStreamLimits) {
		key, id := pair(nkeys.CreateAccount())
		claims := jwt.NewAccountClaims(id)
		claims.Limits.JetStreamLimits = limits
		settings += fmt.Sprintf("%s: %s\n", id, encode(claims, operator))
		user, userID := pair(nkeys.CreateUser())
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		creds, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(userID), key), seed)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), creds, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if name == "system" {
			settings = "system_account: " + id + "\nresolver_preload {\n" + settings
		}
	}
	account("system", jwt.JetStreamLimits{})
	account("app", jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1})
	account("bare", jwt.JetStreamLimits{})
	server := natstest.Start(t, natstest.Config{Settings: "operator: " + encode(jwt.NewOperatorClaims(operatorID), operator) + "\nresolver: MEMORY\n" + settings + "}\n"})
	account("later", jwt.JetStreamLimits{}) // the server does not know it
	app, err := os.ReadFile(filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	bare, err := os.ReadFile(filepath.Join(dir, "bare"))
	if err != nil {
		t.Fatal(err)
	}
	const seed = "-----BEGIN USER NKEY SEED-----"
	token, _, _ := strings.Cut(string(app), seed)
	_, other, _ := strings.Cut(string(bare), seed)
	for name, text := range map[string]string{"mixed": token + seed + other, "text": "nothing that is a credential"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	creds := func(name string) []string { return []string{"creds", filepath.Join(dir, name)} }
	try(t, server, []login{
		{name: "credentials", scheme: "nats", params: creds("app")},
		{name: "an unknown account", scheme: "nats", params: creds("later"), want: natsstore.ErrLogin, says: "creds"},
		{name: "no JetStream in the account", scheme: "nats", params: creds("bare"), want: natsstore.ErrNoJetStream, says: "account"},
		{name: "the seed of another user", scheme: "nats", params: creds("mixed"), want: natsstore.ErrLogin, says: "creds"},
		{name: "no credentials in the file", scheme: "nats", params: creds("text"), want: natsstore.ErrLogin, says: "creds"},
		{name: "no such file", scheme: "nats", params: creds("nothing"), want: store.ErrInvalid, says: "creds in the URL"},
		{name: "no credentials", scheme: "nats", want: natsstore.ErrLogin, says: "creds"},
	})
}

// TestRights names each right that a user lacks, and does not wait for answers.
func TestRights(t *testing.T) {
	t.Parallel()
	user := func(name, publish, subscribe string) string {
		return fmt.Sprintf("{ user: %s, password: s3cret, permissions: { publish: %s, subscribe: %s } }\n", name, publish, subscribe)
	}
	const all = `["perdure.>", "$JS.API.STREAM.*.perdure", "$JS.API.STREAM.MSG.*.perdure"]`
	inbox := `["perdure.>", "_INBOX.>"]`
	server := natstest.Start(t, natstest.Config{Settings: "accounts { APP { jetstream: enabled, users: [\n" +
		user("good", all, inbox) + user("deaf", all, `["perdure.>"]`) + user("mute", `["$JS.API.>"]`, inbox) +
		user("blind", `["perdure.>", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.DELETE.>"]`, inbox) +
		user("lame", `["perdure.>", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.>"]`, inbox) + "] } }\n"})
	as := func(name, says string) login {
		l := login{name: name, scheme: "nats", user: name + ":s3cret@"}
		if says != "" {
			l.want, l.says = natsstore.ErrRights, says
		}
		return l
	}
	try(t, server, []login{
		as("lame", "$JS.API.STREAM.CREATE.perdure"),
		as("good", ""),
		as("deaf", "subscribe to _INBOX"),
		as("mute", "publish to perdure.j."),
		as("blind", "publish to $JS.API.STREAM.MSG.GET.perdure"),
	})
	s := openURL(t, fmt.Sprintf("nats://lame:s3cret@127.0.0.1:%d", server.Port)) // the stream is there now
	if found, err := s.Warnings(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("a user that may not see the limits of the account is warned of %v, %v", found, err)
	}
	if names, err := store.ReadAll(t.Context(), s, "rights", 0); err != nil || len(names) > 0 {
		t.Errorf("looking for rights wrote %v, %v", names, err)
	}
}

// nkey writes the seed of a new user to a file and returns the user's public key.
func nkey(t *testing.T, dir, name string) string {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".nk"), seed, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// authority writes the certificate of an authority to a file, and returns a function
// that writes one of its certificates, with its key.
func authority(t *testing.T, dir, name string) func(name string) {
	t.Helper()
	issue := func(name string, isCA bool, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		if by == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for ext, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
			if err := os.WriteFile(filepath.Join(dir, name+ext), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err = x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	ca, key := issue(name, true, nil, nil)
	return func(name string) { issue(name, false, ca, key) }
}
