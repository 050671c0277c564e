package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/s3store"
	"github.com/perdure/perdure/store/storetest"
)

// TestServer runs the contract on a real server, which keeps objects as files, checks
// keys, and can be killed. It takes minutes to build, so -short leaves it out: the fake
// runs the same contract.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a real S3 server is part of make long")
	}
	server := s3test.Start(t)
	open := func(ctx context.Context, dir string) (store.Store, error) {
		return s3store.Open(ctx, s3test.StoreURL(server.Endpoint, dir), keys)
	}
	t.Run("contract", func(t *testing.T) { storetest.Run(t, open) })
	t.Run("outage", func(t *testing.T) {
		storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
			s, err := open(ctx, dir)
			return s, func(on bool) {
				if on {
					server.Stop()
				} else {
					server.Run(t)
				}
			}, err
		})
	})
	t.Run("wrong keys", func(t *testing.T) {
		for _, o := range []s3store.Options{{AccessKey: "nobody", SecretKey: s3test.SecretKey}, {AccessKey: s3test.AccessKey, SecretKey: "wrong"}} {
			if _, err := s3store.Open(t.Context(), s3test.StoreURL(server.Endpoint, t.Name()), o); !errors.Is(err, s3store.ErrCredentials) {
				t.Errorf("Open as %s says %v, want ErrCredentials", o.AccessKey, err)
			}
		}
	})
	t.Run("missing bucket", func(t *testing.T) {
		url := strings.Replace(s3test.StoreURL(server.Endpoint, t.Name()), s3test.Bucket, "missing-bucket", 1)
		if _, err := s3store.Open(t.Context(), url, keys); !errors.Is(err, s3store.ErrNoBucket) {
			t.Errorf("Open says %v, want ErrNoBucket", err)
		}
	})
	t.Run("erased", func(t *testing.T) {
		s, err := open(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		eraseCanaries(t, s, func() int { return filesWith(t, server.Dir, "canary") })
	})
}

// filesWith counts the files in a folder that contain some text.
func filesWith(t *testing.T, dir, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
