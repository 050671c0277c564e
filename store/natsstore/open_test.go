package natsstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

// TestDurability opens stores on servers with different settings.
func TestDurability(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		always bool
		params [2]string
		o      natsstore.Options
		want   store.Durability
	}{
		{name: "unknown", always: true, want: store.Process},
		{name: "the program knows", o: natsstore.Options{SyncAlways: true}, want: store.Power},
		{name: "always", always: true, params: [2]string{"system"}, want: store.Power},
		{name: "default", params: [2]string{"system"}, want: store.Process},
		{name: "memory", always: true, params: [2]string{"storage", "memory"}, o: natsstore.Options{SyncAlways: true}, want: store.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := natstest.Start(t, natstest.Config{SyncAlways: c.always, User: "app"})
			url := server.URL()
			if c.params[0] == "system" {
				c.params[1] = fmt.Sprintf("nats://system:secret@127.0.0.1:%d", server.Port)
			}
			if c.params[0] != "" {
				url = natstest.With(url, c.params[0], c.params[1])
			}
			s, err := natsstore.Open(t.Context(), url, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.Durability(); got != c.want {
				t.Errorf("the class is %v, want %v", got, c.want)
			}
			if says := s.Weakness(); (says == "") != (c.want == store.Power) {
				t.Errorf("the weakness of class %v is %q", c.want, says)
			}
			if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := store.Open(t.Context(), natstest.Stream(natstest.URL(t), t.TempDir()), store.Require(store.Power)); !errors.Is(err, store.ErrWeak) || !strings.Contains(err.Error(), "sync_interval") {
		t.Errorf("a server whose settings are unknown = %v, want ErrWeak", err)
	}
}

// TestClusterDurability asks all servers that hold a replica.
func TestClusterDurability(t *testing.T) {
	t.Parallel()
	nodes := natstest.StartCluster(t, natstest.Config{SyncAlways: true, User: "app"})
	url := natstest.With(natstest.With(natstest.URLs(nodes), "replicas", "3"), "system", fmt.Sprintf("nats://system:secret@127.0.0.1:%d", nodes[1].Port))
	s := eventually(t, func() (*natsstore.Store, error) {
		s, err := natsstore.Open(t.Context(), url, natsstore.Options{Timeout: 2 * time.Second})
		if errors.Is(err, natsstore.ErrNoJetStream) { // no leader yet
			err = store.ErrUnavailable
		}
		return s, err
	})
	defer s.Close()
	if got := s.Durability(); got != store.Power {
		t.Errorf("the class is %v, want power", got)
	}
}

// TestOpenRefuses opens stores on servers and streams that cannot hold one. Each has an
// error of its own, within seconds.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	secured := natstest.Start(t, natstest.Config{User: "app"})
	base := natstest.URL(t)
	openURL(t, natstest.With(base, "stream", "first"))
	for _, c := range []struct {
		name, url string
		want      error
	}{
		{"subjects of another stream", natstest.With(natstest.With(base, "stream", "second"), "prefix", "first"), store.ErrInvalid},
		{"a wrong password", fmt.Sprintf("nats://app:wrong@127.0.0.1:%d", secured.Port), natsstore.ErrLogin},
		{"nobody listens", "nats://127.0.0.1:1", store.ErrUnavailable},
		{"no JetStream", natstest.Start(t, natstest.Config{NoJS: true}).URL(), natsstore.ErrNoJetStream},
		{"a small max_payload", natstest.Start(t, natstest.Config{MaxPayload: 64 << 10}).URL(), natsstore.ErrPayload},
		{"no cluster", natstest.With(natstest.With(base, "stream", "alone"), "replicas", "3"), store.ErrInvalid},
		{"a bad name", natstest.With(base, "stream", "a.b"), store.ErrInvalid},
		{"an unknown parameter", natstest.With(base, "strem", "a"), store.ErrInvalid},
		{"no store", natstest.With(natstest.With(base, "stream", "nothing"), "existing", "true"), natsstore.ErrNoStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := natsstore.Open(ctx, c.url, natsstore.Options{})
			if !errors.Is(err, c.want) {
				t.Errorf("Open = %v, want %v", err, c.want)
			}
			if err == nil {
				s.Close()
			}
		})
	}
}

// TestForeignStreams opens stores in streams that others have made or changed.
func TestForeignStreams(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(natstest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		want   error
	}{
		{"as it should be", func(*jetstream.StreamConfig) {}, nil},
		{"max_bytes with discard new", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 }, nil},
		{"foreign", func(c *jetstream.StreamConfig) { c.Metadata = nil }, store.ErrForeign},
		{"newer", func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{"perdure.format": "99"} }, store.ErrNewer},
		{"older", func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{"perdure.format": "1"} }, store.ErrInvalid},
		{"max_age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, natsstore.ErrSettings},
		{"max_bytes with discard old", func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<30, jetstream.DiscardOld }, natsstore.ErrSettings},
		{"max_msgs with discard old", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardOld }, natsstore.ErrSettings},
		{"retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, natsstore.ErrSettings},
		{"max_msgs_per_subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, natsstore.ErrSettings},
		{"direct gets", func(c *jetstream.StreamConfig) { c.AllowDirect = true }, natsstore.ErrSettings},
		{"no batches", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, natsstore.ErrSettings},
		{"another subject", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, c.Name+".other") }, natsstore.ErrSettings},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprint("foreign", i, rand.Text()) // the server is shared, also by repeats
			s := openURL(t, natstest.With(natstest.URL(t), "stream", name))
			s.Close()
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			config := stream.CachedInfo().Config
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			c.change(&config)
			if _, err := js.CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			s, err = natsstore.Open(t.Context(), natstest.With(natstest.URL(t), "stream", name), natsstore.Options{})
			if !errors.Is(err, c.want) {
				t.Errorf("Open = %v, want %v", err, c.want)
			}
			if err == nil {
				s.Close()
			}
		})
	}
}

// TestFull fills a server, an account and a stream up to their limits, with entries alone
// and with cells: writes return ErrFull, and what there is stays. A batch of which the
// server may have stored a part is also ErrUnavailable. The store warns of each limit
// that it can see.
func TestFull(t *testing.T) {
	t.Parallel()
	limited := `accounts { LIMITED { users: [{ user: app, password: secret }], jetstream: { max_store: 1MB } } }`
	for _, c := range []struct {
		name   string
		config natstest.Config
		change func(*jetstream.StreamConfig)
		says   string
		cut    bool
		warns  string
	}{
		{"server", natstest.Config{MaxStore: 1 << 20}, nil, "JetStream limits", true, ""},
		{"account", natstest.Config{Settings: limited}, nil, "JetStream limits", true, "of the account"},
		{"max_bytes", natstest.Config{}, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "max_bytes", false, "max_bytes of stream perdure"},
		{"max_msgs", natstest.Config{}, func(c *jetstream.StreamConfig) { c.MaxMsgs = 20 }, "max_msgs", false, "max_msgs of stream perdure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := natstest.Start(t, c.config).URL()
			if c.config.Settings != "" {
				url = strings.Replace(url, "//", "//app:secret@", 1)
			}
			s := openURL(t, url)
			if c.change != nil {
				change(t, url, "perdure", c.change)
			}
			if found, err := s.Warnings(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("an empty store warns of %v, %v", found, err)
			}
			for _, cells := range [][]store.Write{{{Key: "cell", Value: []byte("x")}}, nil} {
				var err error
				journal, n := fmt.Sprint("j", len(cells)), uint64(0)
				for ; n < 1000 && err == nil; n++ {
					for i := range cells {
						cells[i].Key = fmt.Sprint(journal, n)
					}
					_, err = s.AppendBatch(t.Context(), store.Batch{Journal: journal, After: n, Entries: [][]byte{make([]byte, 100<<10)}, Cells: cells})
				}
				if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), c.says) || errors.Is(err, store.ErrUnavailable) != (c.cut && cells != nil) {
					t.Fatalf("append %d to a full store with %d cells = %v, want ErrFull and %q", n, len(cells), err, c.says)
				}
				entries, readErr := store.ReadAll(t.Context(), s, journal, 0)
				if cut := errors.Is(err, store.ErrUnavailable); readErr != nil || uint64(len(entries)) != n-1 && !(cut && uint64(len(entries)) == n) {
					t.Errorf("%d entries are there, %v; want %d", len(entries), readErr, n-1)
				}
			}
			switch found, err := s.Warnings(t.Context()); {
			case err != nil || c.warns == "" && len(found) > 0:
				t.Errorf("the full store warns of %v, %v", found, err)
			case c.warns != "" && (len(found) != 1 || found[0].Kind != store.WarnSpace || !strings.Contains(found[0].Detail, c.warns)):
				t.Errorf("the full store warns of %v, want %s", found, c.warns)
			}
		})
	}
}

// change changes the settings of a stream.
func change(t *testing.T, url, stream string, how func(*jetstream.StreamConfig)) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	how(&config)
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}
