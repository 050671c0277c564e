package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/strict"
)

// tokenFile is an Authenticator whose tokens are in a file.
type tokenFile struct {
	path string

	mu      sync.Mutex
	looked  time.Time // when the file was last checked
	read    time.Time // when it was read
	info    os.FileInfo
	entries map[[sha256.Size]byte]*Principal // of the last valid file
	err     error                            // why the current file is not valid
	log     *slog.Logger
}

var _ Rechecker = (*tokenFile)(nil)

// fileToken is a token in the file.
type fileToken struct {
	Hash   string     `json:"hash,omitempty"`
	Secret fileSecret `json:"secret,omitempty"`
	api.Identity
}

// fileSecret is a text that errors do not show.
type fileSecret string

// UnmarshalJSON decodes a text.
func (s *fileSecret) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(s)) != nil {
		return errors.New("it has to be a string")
	}
	return nil
}

const (
	fileMost     = 4 << 20
	secretLeast  = 20
	fileInterval = time.Second
	fileCoarse   = 3 * time.Second
)

// TokenFile returns an Authenticator whose tokens are in a file, a JSON list:
//
//	[{"hash": "sha256:…", "tenant": "acme", "subject": "ann",
//	  "groups": ["buyers"], "scopes": ["read", "run", "answer"],
//	  "expires": "2030-01-01T00:00:00Z"}]
//
// A token is given as the SHA-256 of its text in hex, or as the "secret" itself,
// of at least 20 bytes, in a file that nobody else can read. With "user" in place
// of a subject it is limited to that user's threads. Changes take effect within a
// second. Neither the file nor its folder may be writable by others. While the file is
// missing or invalid, the last valid tokens remain valid, and the server logs this.
func TokenFile(path string) (Authenticator, error) {
	f := &tokenFile{path: path, log: slog.New(slog.DiscardHandler)}
	f.refresh()
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

// Authenticate finds a token in the file.
func (f *tokenFile) Authenticate(ctx context.Context, token string) (*Principal, error) {
	return f.Recheck(ctx, sha256.Sum256([]byte(token)))
}

// Recheck finds a token by its hash.
func (f *tokenFile) Recheck(_ context.Context, hash [sha256.Size]byte) (*Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := time.Since(f.looked); since >= fileInterval || since < 0 {
		f.refresh()
	}
	return vet(f.entries[hash], nil)
}

// refresh reads the file if it has changed.
func (f *tokenFile) refresh() {
	f.looked = time.Now()
	info, err := os.Stat(f.path)
	// A file that was written just before it was read can change again without a
	// new modification time: clocks of file systems are coarse.
	if err == nil && f.err == nil && guarded(f.path) == nil && f.info != nil && f.read.Sub(f.info.ModTime()) > fileCoarse && os.SameFile(info, f.info) &&
		info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() && info.Mode() == f.info.Mode() {
		return
	}
	entries, info, err := readTokens(f.path)
	switch {
	case err != nil && (f.err == nil || f.err.Error() != err.Error()):
		f.log.Error("the token file cannot be used; the tokens that it last had still count", "error", err)
	case err == nil && f.err != nil:
		f.log.Info("the token file can be used again", "path", f.path)
	}
	if f.err = err; err == nil {
		f.entries, f.info, f.read = entries, info, f.looked
	}
}

// logTo sets the logger of the token files that an Authenticator uses.
func logTo(a Authenticator, log *slog.Logger) {
	switch a := a.(type) {
	case *tokenFile:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.log = log
	case anyOf:
		for _, one := range a {
			logTo(one, log)
		}
	}
}

// guarded returns an error if others may write a file or replace it. In a sticky
// folder, such as /tmp, only owners may.
func guarded(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, one := range []string{real, filepath.Dir(real), filepath.Dir(path)} {
		info, err := os.Stat(one)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
			return fmt.Errorf("others can write to %s (mode %04o): use chmod go-w", one, info.Mode().Perm())
		}
	}
	return nil
}

func readTokens(path string) (map[[sha256.Size]byte]*Principal, os.FileInfo, error) {
	fail := func(format string, args ...any) (map[[sha256.Size]byte]*Principal, os.FileInfo, error) {
		return nil, nil, fmt.Errorf("server: the token file %s: %w", path, fmt.Errorf(format, args...))
	}
	file, err := os.Open(path)
	if err != nil {
		return fail("%w", err)
	}
	defer file.Close()
	if err := guarded(path); err != nil {
		return fail("%w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return fail("%w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, fileMost+1))
	if err != nil {
		return fail("%w", err)
	}
	if len(data) > fileMost {
		return fail("it has more than %d bytes", fileMost)
	}
	entries, err := parseTokens(data, info.Mode().Perm())
	if err != nil {
		return fail("%w", err)
	}
	return entries, info, nil
}

// parseTokens parses the tokens of a file with the given permissions.
func parseTokens(data []byte, mode os.FileMode) (map[[sha256.Size]byte]*Principal, error) {
	var list []fileToken
	err := decodeStrict(data, func(r *strict.Reader) error { return decodeValue(r, reflect.ValueOf(&list).Elem()) })
	if err != nil {
		return nil, fmt.Errorf("it is not a JSON list of tokens: %w", err)
	}
	entries := map[[sha256.Size]byte]*Principal{}
	for i, t := range list {
		hash, err := t.sum()
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i, err)
		}
		if t.Secret != "" && runtime.GOOS != "windows" && mode&0o077 != 0 {
			return nil, fmt.Errorf("it holds secrets, and others can read it (mode %04o): use chmod 600, or keep hashes in it", mode)
		}
		p := new(Principal(t.Identity))
		p.Subject = cmp.Or(p.Subject, p.User)
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("token %d: %v", i, err)
		}
		if entries[hash] != nil {
			return nil, fmt.Errorf("token %d is a duplicate", i)
		}
		entries[hash] = p
	}
	return entries, nil
}

// sum returns the hash of a token.
func (t *fileToken) sum() (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(t.Hash, "sha256:")
	switch {
	case (t.Hash == "") == (t.Secret == ""):
		return hash, errors.New("it needs either a hash or a secret")
	case t.Secret != "" && len(t.Secret) < secretLeast:
		return hash, fmt.Errorf("its secret has fewer than %d bytes", secretLeast)
	case t.Secret != "":
		return sha256.Sum256([]byte(t.Secret)), nil
	case !ok || len(digits) != 2*sha256.Size:
		return hash, errors.New("its hash is not sha256: and 64 digits")
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return hash, errors.New("its hash is not sha256: and 64 digits")
	}
	return hash, nil
}
