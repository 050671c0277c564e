package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// formatKey is the metadata of a stream by which a store is recognised.
const formatKey = "perdure.format"

// layout is the format of a stream: how names become subjects. It was 1 before names
// were cut after slashes, in no version that was released.
const layout = 2

// config returns the settings of a new stream. Readers need its leader, so direct gets,
// which any replica answers, are off.
func (s *Store) config(o Options) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: s.name, Description: "a Perdure store",
		Subjects: []string{s.prefix + ".j.>", s.prefix + ".d.>", s.prefix + ".c.>"},
		Replicas: max(o.Replicas, 1), Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		AllowRollup: true, AllowAtomicPublish: true, AllowMsgTTL: true,
		Metadata: map[string]string{formatKey: strconv.Itoa(layout)},
	}
	if o.Memory {
		c.Storage = jetstream.MemoryStorage
	}
	return c
}

// maxMessage is the size of the largest message of a store, with its headers.
const maxMessage = store.MaxEntry + store.Slack + 4<<10

// prepare finds or creates the stream, and reads what its writes survive.
func (s *Store) prepare(ctx context.Context, o Options) error {
	if v := s.nc.ConnectedServerVersion(); !atLeast(v, 2, 12) {
		return fmt.Errorf("%w: natsstore: the server is NATS %s; 2.12 is the oldest that works", store.ErrInvalid, v)
	}
	if s.nc.MaxPayload() < maxMessage {
		return fmt.Errorf("%w: it is %d bytes; set it to at least %d, or remove it for the default of 1MB", ErrPayload, s.nc.MaxPayload(), maxMessage)
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		return s.failed(ctx, "open", err)
	}
	if err := s.rights(ctx); err != nil {
		return err
	}
	call, cancel := s.call(ctx)
	defer cancel()
	want := s.config(o)
	s.stream, err = js.Stream(call, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if o.Existing {
			return fmt.Errorf("%w in stream %s", ErrNoStore, s.name)
		}
		if err := s.denied(ctx, []string{s.api("STREAM.CREATE")}, nil); errors.Is(err, nats.ErrPermissionViolation) {
			return fmt.Errorf("%w: there is no stream %s, and it may not create one; let it publish to %s, or create the stream as a user that may: %w", ErrRights, s.name, s.api("STREAM.CREATE"), err)
		}
		if s.stream, err = js.CreateStream(call, want); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s.stream, err = js.Stream(call, s.name) // another handle was faster
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w; start the server with -js and enable JetStream for the account: %w", ErrNoJetStream, err)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w, or no server of the cluster leads; start the servers with -js, or try again: %w", ErrNoJetStream, err)
	case err != nil:
		return s.failed(ctx, "open", err)
	}
	info := s.stream.CachedInfo()
	if err := check(info.Config, want, o); err != nil {
		return err
	}
	s.durability, s.weakness, err = s.inspect(ctx, info, o)
	return err
}

// check returns an error if a stream is not a store's, or could lose what it holds.
func check(c, want jetstream.StreamConfig, o Options) error {
	text, ours := c.Metadata[formatKey]
	if !ours {
		return fmt.Errorf("%w: stream %s is not a store's; name another with stream= in the URL", store.ErrForeign, c.Name)
	}
	switch n, err := strconv.Atoi(text); {
	case err != nil || n > layout:
		return fmt.Errorf("%w: stream %s has format %s, but this binary only knows %d; update it", store.ErrNewer, c.Name, text, layout)
	case n < layout:
		return fmt.Errorf("%w: natsstore: stream %s has format %d, of a binary before the first release; move it to another store with that binary", store.ErrInvalid, c.Name, n)
	}
	slices.Sort(c.Subjects)
	slices.Sort(want.Subjects)
	for wrong, bad := range map[string]bool{
		fmt.Sprintf("its subjects are %s, not %s", strings.Join(c.Subjects, ", "), strings.Join(want.Subjects, ", ")): !slices.Equal(c.Subjects, want.Subjects),

		"max_age would drop entries":                      c.MaxAge != 0,
		"max_msgs would drop entries":                     c.MaxMsgs > 0 && c.Discard != jetstream.DiscardNew,
		"max_bytes would drop entries, with discard old":  c.MaxBytes > 0 && c.Discard != jetstream.DiscardNew,
		"max_msgs_per_subject would drop entries":         c.MaxMsgsPerSubject > 0,
		"max_msg_size is too small":                       c.MaxMsgSize > 0 && c.MaxMsgSize < maxMessage,
		"its retention would drop entries; use limits":    c.Retention != jetstream.LimitsPolicy,
		"allow_direct is on, which returns old values":    c.AllowDirect,
		"allow_rollup_hdrs is off":                        !c.AllowRollup,
		"allow_atomic is off":                             !c.AllowAtomicPublish,
		"allow_msg_ttl is off":                            !c.AllowMsgTTL,
		"deny_delete or deny_purge is on":                 c.DenyDelete || c.DenyPurge,
		"it is sealed":                                    c.Sealed,
		"no_ack is on, so that nothing is acknowledged":   c.NoAck,
		"it is a mirror, or has sources":                  c.Mirror != nil || len(c.Sources) > 0,
		"it transforms subjects":                          c.SubjectTransform != nil,
		"persist_mode is async, which acknowledges early": c.PersistMode == jetstream.AsyncPersistMode,
		fmt.Sprintf("it has %d replicas, not %d; change it with nats stream update", c.Replicas, o.Replicas): o.Replicas != 0 && c.Replicas != o.Replicas,
	} {
		if bad {
			return fmt.Errorf("%w: stream %s: %s", ErrSettings, c.Name, wrong)
		}
	}
	return nil
}

// inspect returns what writes to a stream survive. A server syncs every two minutes
// unless its sync_interval is always, and a client cannot see which without the system
// account.
func (s *Store) inspect(ctx context.Context, info *jetstream.StreamInfo, o Options) (_ store.Durability, weakness string, _ error) {
	switch {
	case info.Config.Storage == jetstream.MemoryStorage:
		return store.None, "the stream is in memory; use one with storage=file", nil
	case o.SyncAlways:
		return store.Power, "", nil
	case o.System == "":
		return store.Process, "the servers' sync_interval is unknown, and two minutes by default; set it to always, and give credentials of the system account with system= in the URL, so that it can be read", nil
	}
	servers, _, opts, err := parse(o.System, Options{})
	if err != nil {
		return store.None, "", err
	}
	nc, err := connect(ctx, servers, opts...)
	if err != nil {
		return store.None, "", fmt.Errorf("natsstore: the system account: %w", err)
	}
	defer nc.Close()
	holders := map[string]bool{nc.ConnectedServerName(): true}
	if c := info.Cluster; c != nil && c.Leader != "" {
		holders = map[string]bool{c.Leader: true}
		for _, r := range c.Replicas {
			holders[r.Name] = true
		}
	}
	always, err := syncAlways(ctx, nc, s.timeout, holders)
	switch {
	case err != nil:
		return store.None, "", err
	case !always:
		return store.Process, "sync_interval of a server that holds the stream is not always, or it does not answer; set it on all of them", nil
	}
	return store.Power, "", nil
}

// syncAlways asks servers, by their names, whether they sync before they acknowledge.
// One that does not answer counts as one that does not.
func syncAlways(ctx context.Context, nc *nats.Conn, timeout time.Duration, servers map[string]bool) (bool, error) {
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	inbox := nc.NewRespInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, fmt.Errorf("%w: natsstore: %w", store.ErrUnavailable, err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil); err != nil {
		return false, fmt.Errorf("%w: natsstore: %w", store.ErrUnavailable, err)
	}
	for len(servers) > 0 {
		m, err := answers.NextMsgWithContext(call)
		if errors.Is(err, nats.ErrNoResponders) {
			return false, fmt.Errorf("%w: the user of system= is not of the system account", ErrLogin)
		}
		if err != nil {
			return false, ctx.Err()
		}
		var answer struct {
			Server struct{ Name string }
			Data   struct {
				Config struct {
					Always bool `json:"sync_always"`
				}
			}
		}
		if json.Unmarshal(m.Data, &answer) != nil || !servers[answer.Server.Name] {
			continue
		}
		if !answer.Data.Config.Always {
			return false, nil
		}
		delete(servers, answer.Server.Name)
	}
	return true, nil
}

// atLeast reports whether a version such as 2.15.2 is major.minor or later.
func atLeast(version string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(version, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
