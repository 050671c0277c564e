package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/store"
)

// minVersion is the oldest major version of Redis that works: earlier ones do not know
// scripts that declare what they do, nor sharded channels. Tests change it.
var minVersion = 7

// admit looks at the server of a new connection. It returns an error if that cannot
// hold the store, keeps less than the one at which the store was opened, or has lost
// the store.
func (s *Store) admit(ctx context.Context, c *redis.Conn) error {
	text, err := c.Info(ctx, "server", "memory", "replication", "persistence").Result()
	if err != nil {
		return err
	}
	info := parseInfo(text)
	version := info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < minVersion {
		return refusef("%w: redisstore: the server is Redis %s; %d is the oldest that works", store.ErrInvalid, version, minVersion)
	}
	if info["role"] != "master" {
		return refusef("%w; connect to the primary, or name all servers in the URL with &addr=", ErrReplica)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return refusef("%w: maxmemory-policy is %q; set it to noeviction, or use a server that is not a cache", ErrEvicts, policy)
	}
	class, weakness, err := s.durabilityOf(ctx, c, info)
	if err != nil {
		return err
	}
	if !s.opened.Load() {
		s.durability, s.weakness, s.aof = class, weakness, info["aof_enabled"] == "1"
		return nil
	}
	if class < s.durability {
		return refusef("%w: redisstore: the server keeps less than when the store was opened: %s", store.ErrWeak, weakness)
	}
	format, err := c.Get(ctx, s.keys.format).Result()
	if err == nil && format == s.format {
		return nil
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return refusal{s.gone()}
}

// gone returns the error of a server that no longer has the store.
func (s *Store) gone() error {
	return &store.CorruptError{Where: "key " + s.keys.format, Reason: "the server has lost the store, or now has another one of the same prefix"}
}

// checkRights returns an error if the user may not run a command that the store needs.
func (s *Store) checkRights(ctx context.Context, c *redis.Client) error {
	k := s.keys
	denied, err := rightsScript.Run(ctx, c, []string{k.format, k.journals, k.dropped, k.cells, k.journal + "x", k.cell + "x"}).StringSlice()
	if err == nil && len(denied) > 0 {
		slices.Sort(denied)
		err = refusal{mayNot(strings.Join(slices.Compact(denied), ", "))}
	}
	return err
}

// mayNot returns the error of a user without the right to run commands.
func mayNot(commands string) error {
	return fmt.Errorf("%w to run %s on the keys of the store; nothing was written; look at its ACL", ErrPassword, commands)
}

// durabilityOf returns what the server's settings make writes survive, and what to
// change if that is not a power failure.
func (s *Store) durabilityOf(ctx context.Context, c *redis.Conn, info map[string]string) (store.Durability, string, error) {
	if info["aof_enabled"] != "1" {
		return store.None, "the server keeps no append-only file: set appendonly yes and appendfsync always", nil
	}
	config, err := c.ConfigGet(ctx, "*append*fsync*").Result()
	if err != nil {
		var reply redis.Error
		if errors.As(err, &reply) { // ACLs and hosted servers forbid it
			return store.None, "the server does not say how it syncs its append-only file: let this user run CONFIG GET", nil
		}
		return store.None, "", err
	}
	switch fsync := config["appendfsync"]; {
	case fsync != "always":
		return store.None, fmt.Sprintf("the server syncs its append-only file later than it answers, so that even its own end can lose writes: set appendfsync always, not %s", fsync), nil
	case config["no-appendfsync-on-rewrite"] != "no":
		return store.Process, "the server does not sync its append-only file while it rewrites it: set no-appendfsync-on-rewrite no", nil
	}
	return store.Power, "", nil
}

// parseInfo reads the reply to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// currentFormat is the format of the stores that this package makes.
const currentFormat = 1

// settle finds the store, or creates it.
func (s *Store) settle(ctx context.Context, existing bool) error {
	var others int64
	err := s.link.do(ctx, func(ctx context.Context, c *redis.Client) (err error) {
		if err := s.checkRights(ctx, c); err != nil {
			return err
		}
		s.format, err = c.Get(ctx, s.keys.format).Result()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		s.format = ""
		if others, err = c.Exists(ctx, s.keys.journals, s.keys.dropped, s.keys.cells).Result(); err != nil || others > 0 || existing {
			return err
		}
		if _, err = c.SetNX(ctx, s.keys.format, fmt.Sprintf("%d %s", currentFormat, rand.Text()), 0).Result(); err == nil {
			s.format, err = c.Get(ctx, s.keys.format).Result() // another process may have been faster
		}
		return err
	})
	if err != nil {
		return s.failed("open a store on", err)
	}
	number, id, _ := strings.Cut(s.format, " ")
	switch n, err := strconv.Atoi(number); {
	case s.format == "" && others > 0:
		return &store.CorruptError{Where: "key " + s.keys.format, Reason: "it is missing, though the server has the rest of a store"}
	case s.format == "":
		return fmt.Errorf("%w with the prefix %s; check the name, which is perdure unless the URL sets ?prefix=; if there was one, the server has lost it: restore it from a backup", ErrNoStore, s.prefix)
	case err != nil || id == "":
		return fmt.Errorf("%w: redisstore: the key %s is another program's; choose another prefix with ?prefix=", store.ErrForeign, s.keys.format)
	case n > currentFormat:
		return fmt.Errorf("%w: redisstore: the store has format %d, and this binary knows formats up to %d; use a newer one", store.ErrNewer, n, currentFormat)
	}
	return nil
}
