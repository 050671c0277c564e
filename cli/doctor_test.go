package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestDoctorJudgesTheClock by its year, and by the monotonic one.
func TestDoctorJudgesTheClock(t *testing.T) {
	at := func(year int) time.Time { return time.Date(year, 5, 6, 7, 8, 9, 0, time.UTC) }
	for _, test := range []struct {
		now  time.Time
		wall time.Duration
		want string
	}{
		{at(2026), 100 * time.Millisecond, fine},
		{at(2026), 120 * time.Millisecond, fine},
		{at(1970), 100 * time.Millisecond, broken},
		{at(2400), 100 * time.Millisecond, broken},
		{at(2026), time.Hour, poor},
		{at(2026), -time.Hour, poor},
	} {
		d := &doctor{app: testApp(terminal.Terminal{})}
		d.judgeClock(test.now, 100*time.Millisecond, test.wall)
		if got := d.found[0].Status; got != test.want {
			t.Errorf("%v that goes %v is %s, want %s", test.now, test.wall, got, test.want)
		}
	}
}

// TestDoctorSaysWhyAStoreIsWeak, if the store knows.
func TestDoctorSaysWhyAStoreIsWeak(t *testing.T) {
	for s, want := range map[store.Store]string{
		memstore.New(): "use sqlite:",
		weakStore{memstore.New(), "set fsync always"}: "set fsync always",
	} {
		d := &doctor{app: testApp(terminal.Terminal{})}
		d.durability(s)
		if got := d.found[0]; got.Status != poor || !strings.Contains(got.Fix, want) {
			t.Errorf("the doctor says %+v, want %q", got, want)
		}
	}
}

type weakStore struct {
	store.Store
	why string
}

func (w weakStore) Weakness() string { return w.why }

// brimful is a store whose engine has no room.
type brimful struct{ store.Store }

func (b brimful) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "doctor/") {
		return "", fmt.Errorf("%w: raise its limit", store.ErrFull)
	}
	return b.Store.Put(ctx, key, value, prev)
}

func init() {
	store.Register("brimful", func(context.Context, string) (store.Store, error) { return brimful{memstore.New()}, nil })
}

// TestDoctorSaysOnceThatAStoreIsFull, though the store warns of it as well.
func TestDoctorSaysOnceThatAStoreIsFull(t *testing.T) {
	d := &doctor{app: testApp(terminal.Terminal{})}
	d.app.conn.Store = "brimful:"
	d.openStore(t.Context())
	said := 0
	for _, f := range d.found {
		if strings.Contains(f.Detail, "raise its limit") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("the doctor says it %d times: %+v", said, d.found)
	}
}

// TestDoctorPassesOnWarnings of a server's store, and why it is not ready.
func TestDoctorPassesOnWarnings(t *testing.T) {
	for _, test := range []struct {
		ready, stats     int
		want, says, find string
	}{
		{200, 200, "node", "node b is missing", poor},
		{503, 503, "ready", "1 of 3 nodes", broken},
		{200, 403, "server", "it answers, but", broken},
	} {
		mux := http.NewServeMux()
		answer := func(pattern string, status int, good any) {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
				if status == 200 {
					w.Header().Set("Content-Type", api.TypeJSON)
					_ = json.NewEncoder(w).Encode(good)
					return
				}
				p := *api.ProblemOf(map[int]error{503: store.ErrUnavailable, 403: api.ErrScope}[status])
				p.Detail = "1 of 3 nodes of the cluster are here"
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				_ = json.NewEncoder(w).Encode(p)
			})
		}
		answer("GET /healthz", 200, api.Health{Status: "ok"})
		answer("GET /readyz", test.ready, api.Health{Status: "ok"})
		answer("GET /v1/stats", test.stats, api.Stats{Warnings: []store.Warning{{Kind: store.WarnNode, Detail: "node b is missing", Fix: "start it"}}})
		site := httptest.NewServer(mux)
		d := &doctor{app: testApp(terminal.Terminal{})}
		d.app.conn.Server = site.URL
		d.askServer(t.Context())
		site.Close()
		bad := slices.DeleteFunc(d.found, func(f finding) bool { return f.Status == fine })
		if len(bad) != 1 || bad[0].Check != test.want || bad[0].Status != test.find || !strings.Contains(bad[0].Detail, test.says) || bad[0].Fix == "" {
			t.Errorf("a server that answers %d and %d: the doctor says %+v", test.ready, test.stats, d.found)
		}
	}
}

// TestDoctorPrintsNoEscapes that a server sends, such as in the kind of a warning.
func TestDoctorPrintsNoEscapes(t *testing.T) {
	var out buffer
	d := &doctor{app: testApp(terminal.Terminal{Out: &out})}
	const evil = "\x1b]0;owned\a"
	d.warnings([]store.Warning{{Kind: evil, Detail: evil, Fix: evil}})
	if err := d.report(); err != nil || strings.ContainsAny(out.String(), "\x1b\a") || strings.Count(out.String(), "owned") != 3 {
		t.Errorf("%v, it prints %q", err, out.String())
	}
}

// TestDoctorNamesInterruptedErases of users, and none if there are none.
func TestDoctorNamesInterruptedErases(t *testing.T) {
	s := memstore.New()
	d := &doctor{app: testApp(terminal.Terminal{})}
	if d.erases(t.Context(), s); len(d.found) != 0 {
		t.Errorf("the doctor says %+v", d.found)
	}
	if _, err := s.Put(t.Context(), threads.ErasingUser+"tenant/user", []byte("{}"), ""); err != nil {
		t.Fatal(err)
	}
	if d.erases(t.Context(), s); len(d.found) != 1 || d.found[0].Status != poor || !strings.Contains(d.found[0].Fix, "erase --user") {
		t.Errorf("the doctor says %+v", d.found)
	}
}

// TestDoctorCountsThreadsInNoList, but not those that are just being begun.
func TestDoctorCountsThreadsInNoList(t *testing.T) {
	s := memstore.New()
	rt, err := perdure.New(t.Context(), s, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, age := range []time.Duration{0, 24 * time.Hour, 48 * time.Hour} {
		key := threads.JournalKey(threads.Behind(rt).NewName(time.Now().Add(-age), "", ""))
		if _, err := s.Append(t.Context(), key, 0, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if _, err := s.Put(t.Context(), key, []byte("{}"), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := &doctor{app: testApp(terminal.Terminal{})}
	if d.unlisted(t.Context(), s); len(d.found) != 1 || d.found[0].Status != poor || !strings.Contains(d.found[0].Detail, "1 of 2 journals") {
		t.Errorf("the doctor says %+v", d.found)
	}
}

// TestDoctorAddsNoAdvice to an error that says what to do, but to others.
func TestDoctorAddsNoAdvice(t *testing.T) {
	if got := adviceOn(errors.New("pgstore: the user lacks a right on schema perdure; grant it, or let its owner open the store once: denied")); got != "" {
		t.Errorf("the doctor adds %q", got)
	}
	if adviceOn(errors.New("it does not work")) == "" {
		t.Error("the doctor does not say what to do")
	}
}
