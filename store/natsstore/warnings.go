package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// unseen is after how long without a sign of life the servers consider one of them lost.
const unseen = 10 * time.Second

// accountInfo is where the servers tell the limits of an account.
const accountInfo = "$JS.API.INFO"

// crowded is the part of a limit in use from which on it is worth a warning.
const crowded = 0.9

// Warnings implements store.Warner: it names the servers that keep a copy of the stream
// and are down, and the limits of the stream and of the account that are nearly reached.
// A server tells nobody its own limit.
func (s *Store) Warnings(ctx context.Context) ([]store.Warning, error) {
	call, cancel := s.call(ctx)
	defer cancel()
	info, err := s.stream.Info(call)
	if err != nil {
		return nil, s.failed(ctx, "read from", err)
	}
	account := &jetstream.AccountInfo{}
	if !s.noAccount.Load() { // a store needs no right to ask for that, and each refusal is in the server's log
		if err := s.denied(ctx, []string{accountInfo}, nil); err != nil {
			s.noAccount.Store(errors.Is(err, nats.ErrPermissionViolation))
		} else {
			js, err := jetstream.New(s.nc)
			if err == nil {
				account, err = js.AccountInfo(call)
			}
			if err != nil {
				return nil, s.failed(ctx, "read from", err)
			}
		}
	}
	return append(s.down(info), s.crowds(info, account)...), nil
}

// crowds returns the warnings of limits.
func (s *Store) crowds(info *jetstream.StreamInfo, account *jetstream.AccountInfo) (found []store.Warning) {
	limit := func(what string, used uint64, most int64) {
		if most > 0 && float64(used) >= crowded*float64(most) {
			found = append(found, store.Warning{Kind: store.WarnSpace,
				Detail: fmt.Sprintf("%d of %d are in use: %s; the store refuses all writes when it is full", used, most, what),
				Fix:    "raise this limit, or set it to -1 for none; a full store cannot erase or archive anything either"})
		}
	}
	limit("max_bytes of stream "+s.name, info.State.Bytes, info.Config.MaxBytes)
	limit("max_msgs of stream "+s.name, info.State.Msgs, info.Config.MaxMsgs)
	tier := account.Tier
	if own, ok := account.Tiers[fmt.Sprint("R", info.Config.Replicas)]; ok {
		tier = own
	}
	if info.Config.Storage == jetstream.MemoryStorage {
		limit("bytes in memory of the account (max_memory)", tier.Memory, tier.Limits.MaxMemory)
	} else {
		limit("bytes on disk of the account (max_file, or max_store)", tier.Store, tier.Limits.MaxStore)
	}
	return found
}

// down returns the warnings of servers that are down.
func (s *Store) down(info *jetstream.StreamInfo) (found []store.Warning) {
	if info.Cluster == nil {
		return nil
	}
	var gone []string
	for _, r := range info.Cluster.Replicas {
		silent := r.Active
		if since := info.Cluster.LeaderSince; silent == 0 && since != nil { // the leader has not heard of it yet
			silent = info.TimeStamp.Sub(*since)
		}
		if !r.Offline && silent <= unseen {
			continue
		}
		name := r.Name
		if strings.Contains(name, " ") { // the leader was restarted, and says in words that it does not know it
			name = fmt.Sprintf("with the peer id %s, whose name the leader does not know,", r.Peer)
		}
		gone = append(gone, name)
	}
	all := len(info.Cluster.Replicas) + 1
	for _, name := range gone {
		found = append(found, store.Warning{Kind: store.WarnNode,
			Detail: fmt.Sprintf("server %s is down: %d of %d copies of stream %s are left, and with fewer than %d all writes stop", name, all-len(gone), all, s.name, all/2+1),
			Fix:    "start it again: it fetches what it has missed; if its disk is lost, replace it"})
	}
	return found
}
