package redisstore_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// documentedACL returns the command in the package comment that makes a user, and of
// the commands that it allows those that are needed.
func documentedACL(t *testing.T) (acl string, needed []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "//\tACL SETUSER")
	text, _, found := strings.Cut("ACL SETUSER"+text, "//\n")
	lines := strings.Split(strings.TrimSpace(text), "\n//\t")
	if !found || len(lines) != 4 {
		t.Fatalf("the package comment has no ACL of four lines: %q", text)
	}
	for _, word := range strings.Fields(strings.Join(lines[1:3], " ")) {
		needed = append(needed, strings.TrimPrefix(word, "+"))
	}
	return strings.Join(lines, " "), needed
}

// TestDocumentedRights does everything as a user with exactly the rights of the package
// comment. The server records what it refuses.
func TestDocumentedRights(t *testing.T) {
	redisstore.RewriteSoon(t)
	server := redistest.Start(t, redistest.Always...)
	acl, _ := documentedACL(t)
	admin(t, server.URL, strings.Replace(acl, "PASSWORD", "right", 1))
	url := strings.Replace(server.URL, "redis://", "redis://perdure:right@", 1)
	s, other := openURL(t, url), openURL(t, url)
	ctx := t.Context()
	if got := store.DurabilityOf(s); got != store.Power {
		t.Errorf("the durability is %v, want power", got)
	}
	heard := make(chan struct{}, 1)
	hears, stop := context.WithCancel(ctx)
	go other.Hear(hears, "topic", func([]byte) {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	for n := uint64(0); ; n++ { // until the other listens
		if _, err := s.Append(ctx, "news", n, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Cast(ctx, "topic", []byte("m")); err != nil {
			t.Fatal(err)
		}
		if len(heard) > 0 {
			break
		}
	}
	stop()
	everything(t, s)
	s.Close()
	other.Close()
	if refused := client(t, server.URL).Do(ctx, "ACL", "LOG").Val(); len(refused.([]any)) > 0 {
		t.Errorf("the server has refused %v", refused)
	}
}

// everything uses all calls of a store.
func everything(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx := t.Context()
	_, err := s.AppendBatch(ctx, batch())
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, err := range s.List(ctx, "", "") {
		if cells++; err != nil {
			t.Fatal(err)
		}
	}
	journals := 0
	for _, err := range s.Journals(ctx, "") {
		if journals++; err != nil {
			t.Fatal(err)
		}
	}
	entries, err := store.ReadAll(ctx, s, "j", 0)
	if err != nil || len(entries) != 1 || cells != 2 || journals == 0 {
		t.Errorf("%d entries, %d cells, %d journals, %v", len(entries), cells, journals, err)
	}
	if err := errors.Join(s.Delete(ctx, "a", a.Version), s.Drop(ctx, "j")); err != nil {
		t.Error(err)
	}
}

func batch() store.Batch {
	return store.Batch{Journal: "j", Entries: [][]byte{[]byte("x")},
		Cells: []store.Write{{Key: "a", Value: []byte("x")}, {Key: "b", Value: []byte("x"), Optional: true}}}
}

// TestMissingRights takes each right away that a store needs, before Open and after it.
// Calls that are refused say so, and have written nothing.
func TestMissingRights(t *testing.T) {
	server := redistest.Start(t, "--enable-debug-command", "local")
	acl, needed := documentedACL(t)
	ctx := t.Context()
	root := client(t, server.URL)
	s := openURL(t, server.URL) // by another user
	a, err := s.Put(ctx, "a", []byte("before"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "old", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server.URL, "redis://", "redis://perdure:right@", 1)
	all := strings.Replace(acl, "PASSWORD", "right", 1)
	admin(t, server.URL, all)
	weak := openURL(t, url)
	if _, err := store.Open(ctx, redistest.With(url, "prefix", "other")); !errors.Is(err, redisstore.ErrPassword) {
		t.Errorf("Open with a prefix that the user may not use = %v, want ErrPassword", err)
	}
	state := func() string {
		digest, err := root.Do(ctx, "DEBUG", "DIGEST").Text()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	for _, command := range needed {
		admin(t, server.URL, all, "ACL SETUSER perdure -"+command)
		if late, err := store.Open(ctx, url); err == nil {
			late.Close()
			t.Errorf("Open without %s succeeds", command)
		} else if !errors.Is(err, redisstore.ErrPassword) {
			t.Errorf("Open without %s = %v, want ErrPassword", command, err)
		}
		before := state()
		for call, do := range map[string]func() error{
			"a batch":  func() error { _, err := weak.AppendBatch(ctx, batch2(a)); return err },
			"a put":    func() error { _, err := weak.Put(ctx, "new", []byte("x"), ""); return err },
			"a delete": func() error { return weak.Delete(ctx, "a", a) },
			"a drop":   func() error { return weak.Drop(ctx, "old") },
			"a read":   func() error { _, err := store.ReadAll(ctx, weak, "old", 0); return err },
			"a get":    func() error { _, err := weak.Get(ctx, "a"); return err },
		} {
			err := do()
			if err != nil && !errors.Is(err, redisstore.ErrPassword) {
				t.Errorf("%s without %s = %v, want ErrPassword", call, command, err)
			}
			after := state()
			if err != nil && after != before {
				t.Errorf("%s without %s is refused, but something was written", call, command)
			}
			if before = after; err == nil { // what it needs is there
				a = restore(t, s, root)
				before = state()
			}
		}
	}
	admin(t, server.URL, "ACL DELUSER perdure")
	err = store.ErrUnavailable
	for n := 0; n < 100 && errors.Is(err, store.ErrUnavailable); n++ { // the server has closed the connections
		_, err = weak.Append(ctx, "k", 0, []byte("x"))
	}
	if !errors.Is(err, redisstore.ErrPassword) {
		t.Errorf("an append of a user who was removed = %v, want ErrPassword", err)
	}
}

// batch2 is a batch whose required cell is there.
func batch2(a store.Version) store.Batch {
	b := batch()
	b.Cells[0].Prev = a
	return b
}

// restore brings a store back to one journal, old, and one cell, a. It returns the
// cell's version.
func restore(t *testing.T, s *redisstore.Store, root *redis.Client) store.Version {
	t.Helper()
	ctx := t.Context()
	for _, key := range root.Keys(ctx, "{perdure}:*").Val() {
		if key != "{perdure}:format" {
			root.Del(ctx, key)
		}
	}
	_, err := s.Append(ctx, "old", 0, []byte("x"))
	a, failed := s.Put(ctx, "a", []byte("before"), "")
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return a
}
