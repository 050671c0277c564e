package credentials_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func runtimeOn(t *testing.T, s store.Store) *perdure.Runtime {
	t.Helper()
	rt, err := perdure.New(t.Context(), s, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// giveAll gives credentials of two tenants.
func giveAll(t *testing.T, rt *perdure.Runtime) {
	t.Helper()
	for _, tenant := range []string{"", "acme"} {
		for i := range 3 {
			if err := credentials.Of(rt.Tenant(tenant)).Give(t.Context(), "ann", fmt.Sprint("c", i), canary, "ann"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantAll expects all of them to open.
func wantAll(t *testing.T, rt *perdure.Runtime) {
	t.Helper()
	for _, tenant := range []string{"", "acme"} {
		c := credentials.Of(rt.Tenant(tenant))
		for i := range 3 {
			name := fmt.Sprint("c", i)
			raw, err := c.Sealed(t.Context(), "ann", name)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.Unseal(t.Context(), "ann", name, raw); got != canary || err != nil {
				t.Errorf("%s of %q = %q, %v", name, tenant, got, err)
			}
		}
	}
}

// rotateAll rotates in parts.
func rotateAll(t *testing.T, rt *perdure.Runtime, tenants ...string) (rotated int, err error) {
	for next := ""; ; {
		var n int
		next, n, err = credentials.Rotate(t.Context(), rt, next, 2, tenants...)
		rotated += n
		if err != nil || next == "" {
			return rotated, err
		}
	}
}

// TestRotateSweep cuts a rotation off at each write, and rotates again. Credentials
// can be read with both keys all the time, and then without the old one.
func TestRotateSweep(t *testing.T) {
	for n := 1; ; n++ {
		s := memstore.New()
		t.Setenv(keys, keyring(t, "old"))
		rt := runtimeOn(t, s)
		giveAll(t, rt)
		const named = "AQNvbG" // how data keys that "old" wraps begin, in base64
		if !strings.Contains(string(dump(t, s)), named) {
			t.Fatal("no data key names the key that wraps it")
		}
		t.Setenv(keys, keyring(t, "new", "old"))
		sick := faulty.New(s, faulty.AtWrite(n, faulty.CrashAfter))
		cut, err := rotateAll(t, runtimeOn(t, sick))
		wantAll(t, rt)
		again, err2 := rotateAll(t, rt)
		if err2 != nil || cut+again < 5 || cut+again > 6 {
			t.Errorf("cut at write %d: %d were rotated and then %d, %v", n, cut, again, err2)
		}
		t.Setenv(keys, keyring(t, "new"))
		wantAll(t, rt)
		if left := string(dump(t, s)); strings.Contains(left, named) {
			t.Errorf("cut at write %d: something is still sealed with the old key", n)
		}
		counts, err3 := credentials.Keys(t.Context(), rt)
		if err3 != nil || len(counts) != 1 || counts["new"] != 6 {
			t.Errorf("cut at write %d: the keys are %v, %v", n, counts, err3)
		}
		if !sick.Crashed() {
			if err != nil || cut != 6 {
				t.Errorf("a rotation that nothing cut off = %d, %v", cut, err)
			}
			return
		}
	}
}

// TestRotateUnderLoad gives, reads and forgets credentials while they are rotated.
func TestRotateUnderLoad(t *testing.T) {
	t.Setenv(keys, keyring(t, "old"))
	rt := runtimeOn(t, memstore.New())
	giveAll(t, rt)
	t.Setenv(keys, keyring(t, "new", "old"))
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			c := credentials.Of(rt)
			for i := range 50 {
				name := fmt.Sprint("c", 3+w, "-", i%5)
				if err := c.Give(t.Context(), "ann", name, canary, "ann"); err != nil {
					t.Errorf("Give = %v", err)
				}
				raw, err := c.Sealed(t.Context(), "ann", name)
				if err != nil {
					t.Errorf("Sealed = %v", err)
				}
				if got, err := c.Unseal(t.Context(), "ann", name, raw); got != canary || err != nil {
					t.Errorf("Unseal = %q, %v", got, err)
				}
				if err := c.Forget(t.Context(), "ann", name); err != nil {
					t.Errorf("Forget = %v", err)
				}
			}
		})
	}
	for range 20 {
		if _, err := rotateAll(t, rt); err != nil {
			t.Errorf("Rotate = %v", err)
		}
	}
	all.Wait()
	t.Setenv(keys, keyring(t, "new"))
	wantAll(t, rt)
}

// TestRotateOldCredentials rotates credentials that do not name their tenants.
func TestRotateOldCredentials(t *testing.T) {
	t.Setenv(keys, keyring(t, "old"))
	s := memstore.New()
	rt := runtimeOn(t, s)
	giveAll(t, rt)
	for cell, err := range s.List(t.Context(), "shelf/credential/", "") {
		if err != nil {
			t.Fatal(err)
		}
		value := strings.Replace(string(cell.Value), `,"tenant":"acme"`, "", 1)
		if _, err := s.Put(t.Context(), cell.Key, []byte(value), cell.Version); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(keys, keyring(t, "new", "old"))
	_, n, err := credentials.Rotate(t.Context(), rt, "", 100)
	if n != 3 || !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "3 credentials were not rotated; keep the old keys") {
		t.Errorf("Rotate without the tenants = %d, %v", n, err)
	}
	wantAll(t, rt)
	if n, err := rotateAll(t, rt, "x", "acme"); n != 3 || err != nil {
		t.Errorf("Rotate with the tenants = %d, %v", n, err)
	}
	t.Setenv(keys, keyring(t, "new"))
	wantAll(t, rt)
}
