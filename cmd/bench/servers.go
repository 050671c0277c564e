package main

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/natsstore"  // by URL
	_ "github.com/perdure/perdure/store/redisstore" // by URL
	_ "github.com/perdure/perdure/store/s3store"    // by URL
)

func startPostgres(context.Context, string) (*service, error) {
	s, err := pgtest.Launch()
	if err != nil {
		return nil, err
	}
	return &service{where: s.URL, first: s.URL, address: "127.0.0.1:" + s.Port, stop: s.Stop, raw: func(ctx context.Context) (target, error) {
		return newPgTarget(ctx, s.URL, 64)
	}}, nil
}

func startRedis(_ context.Context, dir string) (*service, error) {
	s, err := redistest.Launch(dir, redistest.Always...)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + s.Port
	return &service{where: s.URL, first: s.URL, address: address, stop: s.Stop, raw: func(context.Context) (target, error) {
		return redisTarget{redis.NewClient(&redis.Options{Addr: address, PoolSize: 64}), redistest.Name()}, nil
	}}, nil
}

// A redisTarget pushes entries to lists.
type redisTarget struct {
	client *redis.Client
	name   string
}

func (t redisTarget) append(ctx context.Context, w int, _ uint64, data []byte) error {
	return t.client.RPush(ctx, t.name+strconv.Itoa(w), data).Err()
}

func (t redisTarget) close() error { return t.client.Close() }

func startNATS(_ context.Context, dir string) (*service, error) {
	n, err := natstest.Launch(natstest.Config{Dir: dir, SyncAlways: true})
	if err != nil {
		return nil, err
	}
	return natsService([]*natstest.Node{n}), nil
}

func startNATSCluster(ctx context.Context, dir string) (*service, error) {
	nodes, err := natstest.LaunchCluster(dir, natstest.Config{SyncAlways: true})
	s := natsService(nodes)
	if err == nil {
		err = eventually(func() (bool, error) { // they have to find each other
			opened, err := store.Open(ctx, s.where)
			if err != nil {
				return false, nil
			}
			return true, opened.Close()
		})
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func natsService(nodes []*natstest.Node) *service {
	servers := natstest.URLs(nodes)
	return &service{
		where:   natstest.With(servers, "replicas", strconv.Itoa(len(nodes))),
		first:   natstest.With(nodes[0].URL(), "replicas", strconv.Itoa(len(nodes))),
		address: strings.TrimPrefix(nodes[0].URL(), "nats://"),
		answer:  "MSG _INBOX.", // news of writes come back to their sender
		raw:     func(ctx context.Context) (target, error) { return newNATSTarget(ctx, servers, len(nodes)) },
		stop: func() {
			for _, n := range nodes {
				n.Kill()
			}
		},
	}
}

// A natsTarget publishes entries to a subject for each writer, without a condition: with
// one, a server may refuse a publish to the subject's only writer.
type natsTarget struct {
	conn *nats.Conn
	js   jetstream.JetStream
	name string
}

func newNATSTarget(ctx context.Context, servers string, replicas int) (target, error) {
	t := &natsTarget{name: pgtest.Name()}
	var err error
	if t.conn, err = nats.Connect(servers); err != nil {
		return nil, err
	}
	if t.js, err = jetstream.New(t.conn); err == nil {
		_, err = t.js.CreateStream(ctx, jetstream.StreamConfig{Name: t.name, Subjects: []string{t.name + ".>"}, Replicas: replicas})
	}
	if err != nil {
		t.conn.Close()
		return nil, err
	}
	return t, nil
}

func (t *natsTarget) append(ctx context.Context, w int, _ uint64, data []byte) error {
	_, err := t.js.Publish(ctx, t.name+"."+strconv.Itoa(w), data)
	return err
}

func (t *natsTarget) close() error {
	defer t.conn.Close()
	return t.js.DeleteStream(context.Background(), t.name)
}

func startS3(_ context.Context, dir string) (*service, error) {
	s, err := s3test.Launch(dir)
	if err != nil {
		return nil, err
	}
	os.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	address := strings.TrimPrefix(s.Endpoint, "http://")
	where := "s3://" + s3test.Bucket + "?region=us-east-1&endpoint=" + url.QueryEscape(s.Endpoint)
	return &service{
		where:   where,
		first:   where,
		address: address,
		raw:     func(context.Context) (target, error) { return newS3Target(address) },
		stop:    s.Stop,
	}, nil
}

// An s3Target replaces an object of each writer by its newest entry, on the condition
// that it is as the writer left it.
type s3Target struct {
	client *minio.Core
	name   string
	tags   []string // by writer
	idle   func()
}

func newS3Target(address string) (target, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client, err := minio.NewCore(address, &minio.Options{
		Creds: credentials.NewStaticV4(s3test.AccessKey, s3test.SecretKey, ""), Region: "us-east-1", Transport: transport, MaxRetries: 1,
	})
	return &s3Target{client, pgtest.Name(), make([]string, 65), transport.CloseIdleConnections}, err
}

func (t *s3Target) append(ctx context.Context, w int, _ uint64, data []byte) error {
	var o minio.PutObjectOptions
	if t.tags[w] == "" {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(t.tags[w])
	}
	info, err := t.client.PutObject(ctx, s3test.Bucket, t.name+"/"+strconv.Itoa(w), bytes.NewReader(data), int64(len(data)), "", "", o)
	t.tags[w] = info.ETag
	return err
}

func (t *s3Target) close() error {
	t.idle()
	return nil
}
