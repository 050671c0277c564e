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
		"nats://s3cret@n.example?stream=two&nkey=s3cret":   "nats://n.example?stream=two",
		"nats://a:s3cret@b.example,s3cret@n.example":       "nats://n.example",
		"s3://k:s3cret@bucket/p?secret_key=s3cret":         "s3://bucket/p",
		"redis://r.example?db=3&password=s3cret":           "redis://r.example?db=3",
		"nats://n.example?stream=b&creds=s3cret.creds":     "nats://n.example?stream=b",
		"s3://b/p?endpoint=https://k:s3cret@s3.example":    "s3://b/p?endpoint=https%3A%2F%2Fs3.example",
		"s3://b/p?endpoint=https://s3.example?key=s3cret":  "s3://b/p?endpoint=https%3A%2F%2Fs3.example",
		"s3://b/p?endpoint=https:s3cret@x":                 "s3://b/p?endpoint=https%3A%E2%80%A6",
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
		"postgres://db.example/agents?sslkey=k.pem&sslPwd=s3cret":                         "postgres://db.example/agents?sslkey=k.pem",
		"nats://s3cret@n.example:4222?stream=two":                                         "nats://n.example:4222?stream=two",
		"nats://ann:s3cret@n.example,s3cret@b.example":                                    "nats://b.example",
		"nats://n.example?creds=a.creds&nkey=s3cret&tls_key=k.pem":                        "nats://n.example?creds=a.creds&tls_key=k.pem",
		"nats://n.example?system=nats%3A%2F%2Fs3cret%40n.example":                         "nats://n.example?system=nats%3A%2F%2Fn.example",
		"rediss://r.example/1?cert=c.pem&key=k.pem&password=s3cret":                       "rediss://r.example/1?cert=c.pem&key=k.pem",
		"redis://s3cret@r.example/1":                                                      "redis://r.example/1",
		"rediss://:s3cret@r.example/1?prefix=two&password=s3cret":                         "rediss://r.example/1?prefix=two",
		"s3://AKIA:s3cret@bucket/p?region=eu":                                             "s3://bucket/p?region=eu",
		"s3://bucket/p?access_key=s3cret&secretKey=s3cret&X-Amz-Signature=s3cret":         "s3://bucket/p",
		"s3://bucket/p?endpoint=https%3A%2F%2FAKIA%3As3cret%40s3.example":                 "s3://bucket/p?endpoint=https%3A%2F%2Fs3.example",
	} {
		if got := WithoutPassword(url); got != want {
			t.Errorf("%s becomes %s, want %s", url, got, want)
		}
	}
}
