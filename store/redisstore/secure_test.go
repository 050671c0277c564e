package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// authority writes NAME.pem, a certificate for 127.0.0.1 that signed itself, and NAME.key
// to a folder, and returns their paths.
func authority(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS opens stores with and without what a server's TLS wants.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := authority(t, dir, "server")
	other, otherKey := authority(t, dir, "other")
	strictAddr, tlsPort := freeport.For(t)
	laxAddr, open := freeport.For(t)
	server := redistest.Start(t, "--tls-port", tlsPort, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	redistest.Start(t, "--tls-port", open, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	strict, lax := "rediss://"+strictAddr, "rediss://"+laxAddr
	for name, c := range map[string]struct {
		url  string
		want error
		says string
	}{
		"authority":             {lax + "?ca=" + cert, nil, ""},
		"client's certificate":  {strict + "?ca=" + cert + "&cert=" + cert + "&key=" + key, nil, ""},
		"not trusted":           {lax, store.ErrInvalid, "&ca=FILE"},
		"another authority":     {lax + "?ca=" + other, store.ErrInvalid, "not trusted"},
		"another name":          {strings.Replace(lax, "127.0.0.1", "localhost", 1) + "?ca=" + cert, store.ErrInvalid, "name the server as the certificate does"},
		"no certificate":        {strict + "?ca=" + cert, store.ErrInvalid, "&cert=FILE"},
		"another's certificate": {strict + "?ca=" + cert + "&cert=" + other + "&key=" + otherKey, store.ErrInvalid, "&cert=FILE"},
		"a port without TLS":    {"rediss://127.0.0.1:" + server.Port, store.ErrInvalid, "does not use TLS"},
		"no TLS":                {"redis://127.0.0.1:" + open, store.ErrInvalid, "rediss://"},
		"files without TLS":     {server.URL + "?ca=" + cert, store.ErrInvalid, "rediss:"},
		"half a pair":           {lax + "?cert=" + cert, store.ErrInvalid, "both"},
		"no file":               {lax + "?ca=" + filepath.Join(dir, "none"), store.ErrInvalid, "none"},
		"no PEM":                {lax + "?ca=" + os.Args[0], store.ErrInvalid, "PEM"},
		"no pair":               {lax + "?cert=" + cert + "&key=" + otherKey, store.ErrInvalid, "cert= and key="},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := redisstore.Open(t.Context(), c.url, redisstore.Options{Timeout: 2 * time.Second})
			if err == nil {
				_, err = s.Append(t.Context(), redistest.Name(), 0, []byte("x"))
				s.Close()
			}
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v and %q", err, c.want, c.says)
			}
		})
	}
}

// TestARefusalThatIsLost resets the first connection, as a server does that refuses a client
// which writes meanwhile: Open still says what the server refuses.
func TestARefusalThatIsLost(t *testing.T) {
	cert, key := authority(t, t.TempDir(), "server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			strict := config.Clone()
			if !first {
				strict.ClientAuth = tls.RequireAndVerifyClientCert
			}
			_ = tls.Server(conn, strict).Handshake()
			if first {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}
	}()
	_, err = redisstore.Open(t.Context(), "rediss://"+l.Addr().String()+"?ca="+cert, redisstore.Options{Timeout: 5 * time.Second})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "&cert=FILE") {
		t.Errorf("Open = %v, want ErrInvalid and &cert=FILE", err)
	}
}

// TestFailover lets a replica take over that has not received the newest writes, as it
// happens when the primary is lost at once. The handle follows, and has lost them, though
// they were acknowledged and synced: the class is that of one server.
func TestFailover(t *testing.T) {
	primary := redistest.Start(t, redistest.Always...)
	replica := redistest.Start(t, append([]string{"--replicaof", "127.0.0.1 " + primary.Port}, redistest.Always...)...)
	s := openURL(t, redistest.With(primary.URL, "addr", "127.0.0.1:"+replica.Port))
	if _, err := s.Append(t.Context(), "j", 0, []byte("replicated")); err != nil {
		t.Fatal(err)
	}
	c := client(t, primary.URL)
	for c.Wait(t.Context(), 1, time.Second).Val() < 1 {
		if t.Context().Err() != nil {
			t.Fatal("the replica does not follow")
		}
	}
	admin(t, replica.URL, "REPLICAOF NO ONE")
	if _, err := s.Append(t.Context(), "j", 1, []byte("acknowledged")); err != nil {
		t.Fatal(err)
	}
	primary.Kill()
	entries, err := store.ReadAll(t.Context(), s, "j", 0)
	for errors.Is(err, store.ErrUnavailable) { // connections that ended with the primary
		entries, err = store.ReadAll(t.Context(), s, "j", 0)
	}
	if err != nil || len(entries) != 1 {
		t.Errorf("the replica has %d entries, %v, want the one that it received", len(entries), err)
	}
	if _, err := s.Append(t.Context(), "j", 2, []byte("next")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an append after the lost one says %v, want ErrConflict", err)
	}
	if _, err := s.Append(t.Context(), "j", 1, []byte("again")); err != nil {
		t.Errorf("an append to the replica: %v", err)
	}
}
