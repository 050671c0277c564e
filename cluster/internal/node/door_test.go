package node

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// openStore opens the store of a node, and waits until it can be opened.
func openStore(t *testing.T, n *Node) store.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		s, err := store.Open(ctx, n.URL(), store.Require(store.Power))
		if err == nil {
			t.Cleanup(func() { s.Close() })
			return s
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// write makes the n-th entry of a journal, and waits until it can.
func write(t *testing.T, s store.Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	id := []byte(rand.Text())
	for {
		_, err := store.AppendOnce(ctx, s, "j", uint64(n-1), id)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("entry %d: %v", n, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestClientsComeBack restarts a node, at its port and at another one, under a store
// that stays open.
func TestClientsComeBack(t *testing.T) {
	all := configs(t)
	n := start(t, all[0])
	start(t, all[1])
	start(t, all[2])
	s := openStore(t, n)
	write(t, s, 1)
	n.Stop()
	n = start(t, all[0])
	write(t, s, 2)
	n.Stop()
	id, err := readIdentity(all[0].Dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(id.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start(t, all[0])
	if now, err := readIdentity(all[0].Dir); err != nil || now.Port == id.Port {
		t.Fatalf("the node has the port of another program: %v, %v", now, err)
	}
	write(t, s, 3)
}

// TestNodeAnswersAgain once the server has dropped its connections, as it does with a
// client that is slow.
func TestNodeAnswersAgain(t *testing.T) {
	c := configs(t)[0]
	n, d := start(t, c), &door{dir: c.Dir}
	if d.ask(c.Node) == nil || d.room(c.Node) != hasRoom {
		t.Fatal("the node does not answer")
	}
	clients, err := n.server.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range clients.Conns {
		_ = n.server.DisconnectClientByID(client.Cid) // one that asked may be gone
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for d.ask(c.Node) == nil || d.room(c.Node) != hasRoom {
		select {
		case <-ctx.Done():
			t.Fatal("the node does not answer again")
		case <-time.After(50 * time.Millisecond):
		}
	}
	n.Stop()
	if !n.own.IsClosed() {
		t.Error("the node's connection outlives it")
	}
}

// TestPortOfANodeThatIsDown lets another program listen there. What it hears does not
// contain the key.
func TestPortOfANodeThatIsDown(t *testing.T) {
	c := configs(t)[0]
	start(t, c).Stop()
	id, err := readIdentity(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(id.Port)))
	if err != nil {
		t.Fatal(err)
	}
	var heard strings.Builder
	var listening sync.WaitGroup
	listening.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte(`INFO {"server_id":"x","version":"2.15.2","headers":true,"max_payload":8388608,"auth_required":true,"nonce":"chosen"}` + "\r\n"))
		buffer := make([]byte, 4096)
		for !strings.Contains(heard.String(), "CONNECT") || !strings.HasSuffix(heard.String(), "\n") {
			count, err := c.Read(buffer)
			heard.Write(buffer[:count])
			if err != nil {
				return
			}
		}
		_, _ = c.Write([]byte("-ERR 'Authorization Violation'\r\n"))
	})
	if _, err := store.Open(t.Context(), Scheme+":"+c.Dir); err == nil {
		t.Error("there is a store without a node")
	}
	l.Close()
	listening.Wait()
	if got := heard.String(); !strings.Contains(got, `"sig"`) || strings.Contains(got, id.Key) {
		t.Errorf("another program at the port of a node heard %s", got)
	}
	start(t, c)
	if now, err := readIdentity(c.Dir); err != nil || now.Key == id.Key || now.Port != id.Port {
		t.Errorf("the node was restarted with the same key or at another port: %+v, %v", now, err)
	}
	if info, err := os.Stat(c.Dir + "/" + identityFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v, %v", info.Mode(), err)
	}
}
