package node

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// identity is what a folder says about its node. A node that comes back under another
// name would be a new one for the others, and its old self would count as missing for
// ever. Other processes of this machine reach the store through the node's port for
// clients, see [door]: it keeps the port if it can, and makes a new key whenever it
// starts.
type identity struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Nodes   int    `json:"nodes"`
	Port    int    `json:"port"`
	Key     string `json:"key"`
}

const identityFile = "node.json"

// identify compares the configuration with what the folder says, and makes it say so
// the first time.
func (c *Config) identify() (*identity, error) {
	now := &identity{Cluster: c.Cluster, Node: c.Node, Nodes: len(c.Join), Key: rand.Text()}
	was, err := readIdentity(c.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	case was.Cluster != now.Cluster:
		return nil, fmt.Errorf("%w: the folder %s is of the cluster %s, not of %s", ErrConfig, c.Dir, was.Cluster, now.Cluster)
	case was.Node != now.Node:
		return nil, fmt.Errorf("%w: the folder %s is of the node %s, not of %s; a node keeps its address and its folder", ErrConfig, c.Dir, was.Node, now.Node)
	case was.Nodes != now.Nodes:
		return nil, fmt.Errorf("%w: it had %d nodes and has %d now, which cannot be changed yet", ErrConfig, was.Nodes, now.Nodes)
	default:
		now.Port = was.Port
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(now.Port)))
	if err != nil && now.Port != 0 { // somebody else has taken it
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	now.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return now, writeFile(filepath.Join(c.Dir, identityFile), now)
}

func readIdentity(dir string) (*identity, error) {
	data, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return nil, err
	}
	i := &identity{}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", identityFile, dir, err)
	}
	return i, nil
}

// writeFile writes a file that only its owner can read, all or nothing.
func writeFile(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	temp := name + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}
