package link

import "testing"

func TestStoreNameHidesSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:app.db": "sqlite:app.db",
		"file:/tmp/a b": "file:/tmp/a b",
		"postgres://ann:s3cret@db.example/agents":          "postgres://db.example/agents",
		"postgres://db.example/agents?password=s3cret":     "postgres://db.example/agents",
		"postgres://ann:s3cret%zz@db.example/agents":       "postgres:…",
		"postgres://ann:s3cret@db.example:54x2/agents":     "postgres:…",
		"postgres:///agents?host=/run&user=ann#s3cret":     "postgres:///agents",
		"postgres://ann:s3cret@a:1,b:2/agents?schema=two":  "postgres://a:1,b:2/agents?schema=two",
		"postgres:ann:s3cret@db.example/agents":            "postgres:…",
		"postgres:/ann:s3cret@db.example/agents":           "postgres:…",
		"postgres://ann:12/s3cret@db.example/agents":       "postgres:…",
		"rediss://:s3cret@r.example/1?prefix=two&addr=b:1": "rediss://r.example/1?prefix=two",
		"sqlite:a@b?.db?shared-folder":                     "sqlite:a@b?.db",
		"memory:":                                          "memory:",
		"postgres://ann:s3@cret@db.example/agents?x=%%":    "postgres://db.example/agents",
	} {
		if got := StoreName(url); got != want {
			t.Errorf("%s is called %s, want %s", url, got, want)
		}
	}
}

func TestWithoutPassword(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:app.db": "sqlite:app.db",
		"postgres://db.example/agents?schema=two&sslmode=require":                         "postgres://db.example/agents?schema=two&sslmode=require",
		"postgres://ann@db.example/agents?x=a b":                                          "postgres://ann@db.example/agents?x=a b",
		"postgres://ann:s3cret@db.example/agents?schema=two":                              "postgres://ann@db.example/agents?schema=two",
		"postgres://ann:s3cret@a:1,b:2/agents":                                            "postgres://ann@a:1,b:2/agents",
		"postgres://db.example/agents?password=s3cret&sslpassword=s3cret&user=ann":        "postgres://db.example/agents?user=ann",
		"postgres://pooler/agents?direct=postgres%3A%2F%2Fann%3As3cret%40db.example%2Fag": "postgres://pooler/agents?direct=postgres%3A%2F%2Fann%40db.example%2Fag",
		"postgres:ann:s3cret@db.example/agents":                                           "postgres:…",
	} {
		if got := WithoutPassword(url); got != want {
			t.Errorf("%s becomes %s, want %s", url, got, want)
		}
	}
}
