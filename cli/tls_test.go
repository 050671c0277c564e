package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestCertificateIsReplaced replaces the certificate of a server that runs, the way
// those do who renew them, and leaves a broken one for a while.
func TestCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	put := func(name string, certPEM, keyPEM []byte) {
		t.Helper()
		for file, data := range map[string][]byte{cert: certPEM, key: keyPEM} {
			if err := os.WriteFile(file+".new", data, 0o600); err != nil {
				t.Fatal(name, err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	firstCert, firstKey := newCertificate(t, "first")
	put("first", firstCert, firstKey)

	st := memstore.New()
	defer st.Close()
	rt, err := perdure.New(t.Context(), st, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder // read when the server has stopped
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c, err := loadCertificate(cert, key, logger)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(t.Context(), "addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{rt: rt, api: server.New(rt, server.Options{}), log: slog.New(slog.DiscardHandler), certificate: c}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, l) }()

	// presented asks with a new connection who the server is.
	presented := func() string {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + l.Addr().String() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			t.Fatalf("the answer is %s %s", resp.Proto, resp.Status)
		}
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	until := func(name string) {
		t.Helper()
		for range 100 {
			if presented() == name {
				return
			}
			time.Sleep(100 * time.Millisecond) // the files are looked at once a second
		}
		t.Fatalf("the server does not present %s", name)
	}
	if got := presented(); got != "first" {
		t.Errorf("it presents %s", got)
	}
	secondCert, secondKey := newCertificate(t, "second")
	put("broken", secondCert[:100], secondKey)
	time.Sleep(2 * certificateEvery) // so that the next connection looks at the files
	if got := presented(); got != "first" {
		t.Errorf("with a broken file it presents %s", got)
	}
	put("second", secondCert, secondKey)
	until("second")
	if plain, err := http.Get("http://" + l.Addr().String() + "/healthz"); err == nil {
		plain.Body.Close()
		if plain.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS the answer is %s", plain.Status)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("the log mentions the broken file %d times:\n%s", n, log.String())
	}
	for _, names := range [][2]string{{cert, ""}, {"", key}, {cert, cert}, {filepath.Join(dir, "none"), key}} {
		if _, err := loadCertificate(names[0], names[1], logger); err == nil || !strings.Contains(err.Error(), "--tls-cert and --tls-key") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// newCertificate returns a certificate for this machine, signed with its own key.
func newCertificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
