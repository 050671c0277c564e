package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// strangers returns the ids of members of the cluster that are not in this node's list:
// nodes that others have replaced. They count as missing until they are removed. There
// are none as long as a node of the list is not here, and on nodes that do not lead.
func (n *Node) strangers() (ids []string) {
	info, err := n.server.Jsz(nil)
	if err != nil || info.Meta == nil || !n.server.JetStreamIsLeader() {
		return nil
	}
	here := map[string]bool{n.server.Name(): true}
	for _, peer := range info.Meta.Replicas {
		switch {
		case slices.Contains(n.others, peer.Name):
			here[peer.Name] = !peer.Offline
		case peer.Offline:
			ids = append(ids, peer.Peer)
		}
	}
	for _, address := range n.config.Join {
		if !here[serverName(address)] { // perhaps its name is not known yet
			return nil
		}
	}
	return ids
}

// remove removes a member of the cluster. Its copy of the store is made anew on a node
// that has none.
func (n *Node) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nc, err := nats.Connect("", nats.InProcessServer(n.server), nats.NoReconnect(),
		nats.Nkey(systemUser, func(nonce []byte) ([]byte, error) { return proof(n.system, nonce), nil }))
	if err != nil {
		return err
	}
	defer nc.Close()
	request, err := json.Marshal(server.JSApiMetaServerRemoveRequest{Peer: id})
	if err != nil {
		return err
	}
	m, err := nc.RequestWithContext(ctx, server.JSApiRemoveServer, request)
	if err != nil {
		return err
	}
	var answer server.JSApiMetaServerRemoveResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Description)
	}
	return nil
}

// tidy removes the members that are not in the list.
func (n *Node) tidy(ctx context.Context) {
	for _, id := range n.strangers() {
		if err := n.remove(ctx, id); err != nil {
			n.config.Log.Warn("a node that is not in the list cannot be removed from the cluster; it is tried again", "id", id, "error", fmt.Sprint(err))
			return
		}
		n.config.Log.Info("a node that is not in the list was removed from the cluster", "id", id)
	}
}
