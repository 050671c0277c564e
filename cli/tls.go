package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a certificate and its key in two files, which may change while the
// server runs: whoever renews certificates only has to replace them.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	looked time.Time
	files  [2]os.FileInfo // as they were when they were last read
	pair   *tls.Certificate
	failed string // why the files cannot be used, as it was logged
}

// certificateEvery is how often the files are looked at, at most.
const certificateEvery = time.Second

// loadCertificate returns the certificate in two files, nil if none are named.
func loadCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--tls-cert and --tls-key belong together: name both files")
	}
	c := &certificate{cert: cert, key: key, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return c, nil
}

// config returns the configuration of a server that presents the certificate.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil }}
}

// current returns the certificate as it now is in the files. While they cannot be
// used, as between two renames, it is the one that they last had.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificateEvery {
		c.looked = now
		if c.changed() {
			c.reload()
		}
	}
	return c.pair
}

func (c *certificate) reload() {
	err := c.load()
	switch {
	case err == nil:
		c.failed = ""
		c.log.Info("the certificate was replaced", "file", c.cert, "expires", c.pair.Leaf.NotAfter)
	case err.Error() != c.failed:
		c.failed = err.Error()
		c.log.Error("the new certificate cannot be used; the last one still is", "error", err)
	}
}

// changed reports whether a file is not as it was read.
func (c *certificate) changed() bool {
	for i, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		was := c.files[i]
		if err != nil || !os.SameFile(info, was) || !info.ModTime().Equal(was.ModTime()) || info.Size() != was.Size() {
			return true
		}
	}
	return false
}

// load reads the files.
func (c *certificate) load() error {
	var files [2]os.FileInfo
	for i, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		files[i] = info
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.files, c.pair = files, &pair
	return nil
}
