package link

import "testing"

func TestStoreNameHidesSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:app.db": "sqlite:app.db",
		"file:/tmp/a b": "file:/tmp/a b",
		"postgres://ann:s3cret@db.example/agents":       "postgres://db.example/agents",
		"postgres://db.example/agents?password=s3cret":  "postgres://db.example/agents",
		"postgres://ann:s3cret%zz@db.example/agents":    "postgres:…",
		"postgres://ann:s3cret@db.example:54x2/agents":  "postgres:…",
		"postgres:///agents?host=/run&user=ann#s3cret":  "postgres:///agents",
		"postgres://ann:s3@cret@db.example/agents?x=%%": "postgres://db.example/agents",
	} {
		if got := StoreName(url); got != want {
			t.Errorf("%s is called %s, want %s", url, got, want)
		}
	}
}
