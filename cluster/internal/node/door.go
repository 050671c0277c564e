package node

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
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
