// Command services starts the servers that tests use, for a developer, and stops
// them when it is interrupted. It imports the packages that start them for tests.
package main

import (
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/s3test"
)

// services start a server each, print what it is and the URL of a store there, and return
// a function that stops it.
var services = []struct {
	name  string
	start func() (urls, env string, stop func(), err error)
}{
	{"PostgreSQL", func() (string, string, func(), error) {
		direct, pooled, stop, err := pgtest.Services()
		return direct + "\n             " + pooled + "  (PgBouncer)", pgtest.Env + "='" + direct + "'", stop, err
	}},
	{"Redis", func() (string, string, func(), error) {
		s, err := redistest.Launch("", redistest.Always...)
		if err != nil {
			return "", "", nil, err
		}
		return s.URL, redistest.Env + "='" + s.URL + "'", s.Stop, nil
	}},
	{"NATS", func() (string, string, func(), error) {
		dir, err := os.MkdirTemp("", "perdure-nats-")
		if err != nil {
			return "", "", nil, err
		}
		url, stop, err := natstest.Inside(dir)
		return url, "", func() {
			stop()
			os.RemoveAll(dir)
		}, err
	}},
	{"S3", func() (string, string, func(), error) {
		s := httptest.NewServer(s3test.NewFake())
		return fmt.Sprintf("s3://%s/agents?region=us-east-1&endpoint=%s  (in memory; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may be anything)", s3test.Bucket, s.URL),
			s3test.Env + "='" + s.URL + "'", s.Close, nil
	}},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("services: ")
	var exports string
	started := 0
	for _, s := range services {
		urls, env, stop, err := s.start()
		if err != nil {
			log.Printf("%s is left out: %v", s.name, err)
			continue
		}
		defer stop()
		started++
		fmt.Printf("%-12s %s\n", s.name+":", urls)
		if env != "" {
			exports += "             export " + env + "\n"
		}
	}
	if started == 0 {
		os.Exit(1)
	}
	fmt.Printf(`
These are URLs that store.Open takes. In tests:
%s
They run until this is interrupted, and their data goes with them.
`, exports)
	over := make(chan os.Signal, 1)
	signal.Notify(over, os.Interrupt, syscall.SIGTERM)
	<-over
}
