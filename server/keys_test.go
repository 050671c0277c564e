package server_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

func ringText(ids ...string) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, id+":"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id), 32)[:32]))
	}
	return strings.Join(parts, ",")
}

// rotate rotates all keys of a server in parts of two.
func rotate(site *servertest.Site) (rotated int) {
	for next := ""; ; {
		part := servertest.Decode[api.Rotation](site.Do("POST", "/v1/keys/rotate", fmt.Sprintf(`{"after":%q,"limit":2}`, next)), 200)
		rotated += part.Rotated
		if part.Problem != "" {
			site.T.Error(part.Problem)
		}
		if next = part.Next; next == "" {
			return rotated
		}
	}
}

func wantKeys(site *servertest.Site, want string) {
	site.T.Helper()
	var got []string
	for _, k := range servertest.Decode[api.KeyList](site.Do("GET", "/v1/keys", ""), 200).Keys {
		got = append(got, fmt.Sprintf("%s %s %d current:%v missing:%v needed:%v", k.Of, k.ID, k.Uses, k.Current, k.Missing, k.Needed))
	}
	if text := strings.Join(got, "; "); text != want {
		site.T.Errorf("the keys are\n%s, want\n%s", text, want)
	}
}

// TestKeys rotates the keys of a sealed store, and those of credentials.
func TestKeys(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "")
	inner := unclosed{memstore.New()}
	on := func(ids ...string) *servertest.Site {
		t.Helper()
		s := store.Store(servertest.Must(seal.New(t.Context(), inner, servertest.Must(seal.ParseRing(ringText(ids...)))(t)))(t))
		return servertest.NewOn(t, s, server.Options{}, testFlows()...)
	}
	site := on("a")
	for i := range 5 {
		site.Do("POST", "/v1/threads", fmt.Sprintf(`{"id":"t%d"}`, i)).Want(201)
	}
	site = on("b", "a")
	wantKeys(site, "store b 0 current:true missing:false needed:true; store a 6 current:false missing:false needed:true")
	if n := rotate(site); n != 6 {
		t.Errorf("%d data keys were rotated", n)
	}
	wantKeys(site, "store b 6 current:true missing:false needed:true; store a 0 current:false missing:false needed:false")
	site = on("b")
	site.Do("GET", "/v1/threads/t3", "").Want(200)

	site = servertest.New(t, server.Options{}, testFlows()...)
	wantKeys(site, "")
	site.Do("POST", "/v1/keys/rotate", `{"after":"credentials"}`).Problem(409, "unsealed")
	t.Setenv("PERDURE_KEYS", ringText("a"))
	for _, tenant := range []string{"", "acme", "globex"} {
		servertest.Check(t, credentials.Of(site.Runtime.Tenant(tenant)).Give(t.Context(), "ann", "door", "sesame", "ann"))
	}
	t.Setenv("PERDURE_KEYS", ringText("b"))
	wantKeys(site, "credentials b 0 current:true missing:false needed:true; credentials a 3 current:false missing:true needed:true")
	if part := servertest.Decode[api.Rotation](site.Do("POST", "/v1/keys/rotate", `{"after":"credentials"}`), 200); !strings.Contains(part.Problem, "3 credentials were not rotated") {
		t.Errorf("rotating without the old key = %+v", part)
	}
	t.Setenv("PERDURE_KEYS", ringText("b", "a"))
	if n := rotate(site); n != 3 {
		t.Errorf("%d credentials were rotated", n)
	}
	wantKeys(site, "credentials b 3 current:true missing:false needed:true; credentials a 0 current:false missing:false needed:false")
	t.Setenv("PERDURE_KEYS", ringText("b")+",")
	if p := site.Do("GET", "/v1/keys", "").Problem(409, "unsealed"); !strings.Contains(string(p.Body), "part 2 of the ring") {
		t.Errorf("a ring that cannot be read is %s", p.Body)
	}
	t.Setenv("PERDURE_KEYS", "b:"+strings.SplitN(ringText("c"), ":", 2)[1]) // other bytes
	if part := servertest.Decode[api.Rotation](site.Do("POST", "/v1/keys/rotate", `{"after":"credentials"}`), 200); !strings.Contains(part.Problem, "3 credentials were not rotated") {
		t.Errorf("rotating with other bytes under the same id = %+v", part)
	}
	if all := servertest.Decode[api.KeyList](site.Do("GET", "/v1/keys", ""), 200).Keys; len(all) != 1 || all[0].Wrong != 3 || all[0].Uses != 3 {
		t.Errorf("other bytes under the same id are %+v", all)
	}
	t.Setenv("PERDURE_KEYS", ringText("b"))
	site.Do("POST", "/v1/keys/rotate", `{"after":"x y"}`).Problem(400, "invalid")

	people := servertest.People{"other": {Subject: "other", Tenant: "other", Scopes: []api.Scope{api.ScopeAdmin}}}
	site = servertest.New(t, server.Options{Auth: people}, testFlows()...)
	site.Token = "other"
	site.Do("GET", "/v1/keys", "").Problem(403, "scope")
	site.Do("POST", "/v1/keys/rotate", `{}`).Problem(403, "scope")
}
