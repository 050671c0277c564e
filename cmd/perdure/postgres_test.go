//go:build unix

package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
)

// TestLookingMakesNoSchema: only commands that make a store make one in PostgreSQL.
// Nothing that any command says has the password.
func TestLookingMakesNoSchema(t *testing.T) {
	dir, base := t.TempDir(), strings.Replace(pgtest.URL(t), "postgres@", "postgres:s3cret@", 1)
	typo, store := pgtest.With(base, "schema", pgtest.Name()), pgtest.With(base, "schema", pgtest.Name())
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	schema := u.Query().Get("schema")
	run := func(code int, says string, args ...string) {
		t.Helper()
		p := launch(t, dir, []string{beHostile + "=1"}, args...).ends(code)
		said := p.said.String() + p.err.String()
		if !strings.Contains(said, says) {
			t.Errorf("%s says %s\nwithout %q", args, said, says)
		}
		if strings.Contains(said, "s3cret") {
			t.Errorf("%s says the password: %s", args, said)
		}
	}
	for _, args := range []string{"threads", "show t", "export t", "fork t", "erase t --yes", "token list", "memory list", "flows", "workers"} {
		run(7, "there is no store", append(strings.Fields(args), "--store", typo)...)
	}
	run(1, "there is no store", "doctor", "--store", typo)
	run(7, "there is no store", "migrate", "--from", typo, "--to", "file:"+dir+"/none")
	run(7, "there is no store", "threads", "--store", typo) // still

	run(4, "answer", "run", "pay", "lines", "--thread", "t", "--store", store)
	run(3, "threads --store ", "show", "none", "--store", store)
	run(0, "schema="+schema, "doctor", "--store", store)
	run(0, "schema="+schema, "doctor", "--json", "--store", store)
	run(7, "postgres:…", "threads", "--store", "postgres:ann:s3cret@host/db")
	help := launch(t, dir, []string{"PERDURE_STORE=" + store}, "threads", "--help").ends(0).said.String()
	if strings.Contains(help, "s3cret") || !strings.Contains(help, schema) {
		t.Errorf("the help is %s", help)
	}
	run(0, "schema="+schema, "migrate", "--from", store, "--to", pgtest.With(base, "schema", schema+"_2"))
	run(5, "schema="+schema+"_2", "cancel", "t", "--store", store)
}
