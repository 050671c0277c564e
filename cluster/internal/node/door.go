package node

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Users of a node's port for clients.
const (
	clientUser = "perdure"
	systemUser = "system" // of the server's system account, for this process only
)

// proof returns what a client shows to prove that it knows a key: it answers the
// server's nonce with it. The key does not travel, so that a program that listens on
// the port of a node that is down learns nothing.
func proof(key string, nonce []byte) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write(nonce)
	return h.Sum(nil)
}

// guard lets clients in that know a key.
type guard struct {
	keys   map[string]string // by user
	system func() *server.Account
}

var _ server.Authentication = (*guard)(nil)

// Check implements server.Authentication.
func (g *guard) Check(c server.ClientAuthentication) bool {
	o, nonce := c.GetOpts(), c.GetNonce()
	key, known := g.keys[o.Nkey]
	sig, err := base64.RawURLEncoding.DecodeString(o.Sig)
	if !known || err != nil || len(nonce) == 0 || !hmac.Equal(sig, proof(key, nonce)) {
		return false
	}
	if o.Nkey == systemUser {
		c.RegisterUser(&server.User{Username: systemUser, Account: g.system()})
	}
	return true
}

// door is the way to the node of a folder. It reads the port and the key whenever a
// connection is made, since a node that was restarted has others.
type door struct {
	dir string
	mu  sync.Mutex
	key string // of the newest connection
}

var _ nats.CustomDialer = (*door)(nil)

// options are those of a connection through the door.
func (d *door) options() []nats.Option {
	return []nats.Option{nats.SetCustomDialer(d), nats.Nkey(clientUser, d.sign), nats.IgnoreAuthErrorAbort()}
}

// Dial implements nats.CustomDialer. The node may have another address than the
// caller thinks.
func (d *door) Dial(network, _ string) (net.Conn, error) {
	id, err := readIdentity(d.dir)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.key = id.Key
	d.mu.Unlock()
	return net.DialTimeout(network, net.JoinHostPort("127.0.0.1", strconv.Itoa(id.Port)), 5*time.Second)
}

func (d *door) sign(nonce []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return proof(d.key, nonce), nil
}

// subject is where a node tells other processes of its machine who is missing.
func subject(node string) string { return "perdure-node." + node }

// roomSubject is where a node tells all nodes whether it has room.
func roomSubject(node string) string { return "perdure-room." + node }

// The answers there.
const (
	hasRoom = "room"
	isFull  = "full"
)

// tell answers processes that ask who is missing, and nodes that ask whether this one has
// room. It needs no quorum.
func (n *Node) tell(key string) error {
	nc, err := nats.Connect("", nats.InProcessServer(n.server), nats.MaxReconnects(-1), nats.Timeout(10*time.Second),
		nats.Nkey(clientUser, func(nonce []byte) ([]byte, error) { return proof(key, nonce), nil }))
	if err != nil {
		return err
	}
	n.own = nc
	_, err = nc.Subscribe(subject(n.config.Node), func(m *nats.Msg) {
		gone, _ := errors.AsType[*MissingError](n.misses())
		if data, err := json.Marshal(gone); err == nil {
			_ = m.Respond(data) // who does not hear it knows less
		}
	})
	if err != nil {
		return err
	}
	_, err = nc.Subscribe(roomSubject(n.config.Node), func(m *nats.Msg) {
		says := hasRoom
		if n.isFull() {
			says = isFull
		}
		_ = m.Respond([]byte(says))
	})
	return err
}

// room asks a node, which may be another one, whether it has room. It returns "" if that
// does not answer.
func (d *door) room(node string) string {
	nc, err := nats.Connect("nats://127.0.0.1", append(d.options(), nats.NoReconnect())...)
	if err != nil {
		return ""
	}
	defer nc.Close()
	m, err := nc.Request(roomSubject(node), nil, time.Second)
	if err != nil {
		return ""
	}
	return string(m.Data)
}

// ask returns a *MissingError if the node misses others, and says so.
func (d *door) ask(node string) error {
	nc, err := nats.Connect("nats://127.0.0.1", append(d.options(), nats.NoReconnect())...)
	if err != nil {
		return nil
	}
	defer nc.Close()
	var gone *MissingError
	m, err := nc.Request(subject(node), nil, time.Second)
	if err != nil || json.Unmarshal(m.Data, &gone) != nil || gone == nil {
		return nil
	}
	return gone
}
