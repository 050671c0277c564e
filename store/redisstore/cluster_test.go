package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/storetest"
)

// cluster starts a cluster of three nodes.
func cluster(t *testing.T) []*redistest.Server {
	t.Helper()
	var nodes []*redistest.Server
	var buses []string
	for range 3 {
		_, bus := freeport.For(t)
		nodes = append(nodes, redistest.Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "15000"}, redistest.Always...)...))
		buses = append(buses, bus)
	}
	for i, ends := range []string{"0 5460", "5461 10922", "10923 16383"} {
		admin(t, nodes[i].URL, "CLUSTER ADDSLOTSRANGE "+ends)
		if i > 0 {
			admin(t, nodes[0].URL, "CLUSTER MEET 127.0.0.1 "+nodes[i].Port+" "+buses[i])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		c := client(t, n.URL)
		for {
			info := c.ClusterInfo(ctx).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("the cluster does not form: %s", info)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nodes
}

// TestCluster runs the contract, or with -short its hardest case, on a cluster: the node
// that the URL names has only some of the stores. Then it moves a store to another node
// under a handle.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	t.Run("contract", func(t *testing.T) {
		open := func(ctx context.Context, dir string) (store.Store, error) {
			return redisstore.Open(ctx, redistest.Prefix(nodes[0].URL, dir), redisstore.Options{})
		}
		if testing.Short() {
			storetest.Linearize(t, open, storetest.LinearizeOptions{})
			return
		}
		storetest.Run(t, open)
	})
	t.Run("only database 0", func(t *testing.T) {
		if s, err := redisstore.Open(t.Context(), nodes[0].URL+"/1", redisstore.Options{}); !errors.Is(err, redisstore.ErrNoDatabase) {
			t.Errorf("Open of database 1 of a cluster = %v, %v; want ErrNoDatabase", s, err)
		}
	})
	t.Run("move", func(t *testing.T) { moveSlot(t, nodes) })
}

func moveSlot(t *testing.T, nodes []*redistest.Server) {
	ctx := t.Context()
	prefix := redistest.Name()
	slot := client(t, nodes[0].URL).ClusterKeySlot(ctx, "{"+prefix+"}:format").Val()
	from := nodes[min(slot/5461, 2)]
	to := nodes[(min(slot/5461, 2)+1)%3]
	s := openURL(t, redistest.With(nodes[0].URL, "prefix", prefix))
	var once sync.Once
	each := 100
	if testing.Short() {
		each = 30
	}
	appendAll(t, s, s, 4, each, func() {
		once.Do(func() {
			if err := move(ctx, t, slot, from, to); err != nil {
				t.Error(err)
			}
		})
	})
	if left := client(t, from.URL).ClusterCountKeysInSlot(ctx, int(slot)).Val(); left != 0 {
		t.Errorf("the first node still has %d keys", left)
	}
}

// move migrates a slot from one node to another, as redis-cli --cluster does.
func move(ctx context.Context, t *testing.T, slot int64, from, to *redistest.Server) error {
	a, b := client(t, from.URL), client(t, to.URL)
	idA, idB := a.ClusterMyID(ctx).Val(), b.ClusterMyID(ctx).Val()
	at := strconv.FormatInt(slot, 10)
	err := errors.Join(b.Do(ctx, "CLUSTER", "SETSLOT", at, "IMPORTING", idA).Err(), a.Do(ctx, "CLUSTER", "SETSLOT", at, "MIGRATING", idB).Err())
	for err == nil {
		names := a.ClusterGetKeysInSlot(ctx, int(slot), 100).Val()
		if len(names) == 0 {
			break
		}
		args := []any{"MIGRATE", "127.0.0.1", to.Port, "", "0", "60000", "KEYS"}
		for _, name := range names {
			args = append(args, name)
		}
		if err = a.Do(ctx, args...).Err(); err != nil {
			err = fmt.Errorf("migrating %q: %w", names, err)
		}
	}
	return errors.Join(err, b.Do(ctx, "CLUSTER", "SETSLOT", at, "NODE", idB).Err(), a.Do(ctx, "CLUSTER", "SETSLOT", at, "NODE", idB).Err())
}
