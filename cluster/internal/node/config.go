package node

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var clusterName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,48}$`)

// complete checks a configuration and fills in what follows from the rest.
func (c *Config) complete() error {
	if !clusterName.MatchString(c.Cluster) {
		return fmt.Errorf("%w: %q cannot be its name; use up to 48 letters, digits, dashes and underscores", ErrConfig, c.Cluster)
	}
	var own []string
	for _, a := range c.Join {
		host, _, err := splitAddress(a)
		if err != nil {
			return err
		}
		if ofThisMachine(host) {
			own = append(own, a)
		}
	}
	if c.Node == "" {
		if len(own) != 1 {
			return fmt.Errorf("%w: %d of the addresses to join are of this machine; say with --node which one is this node's", ErrConfig, len(own))
		}
		c.Node = own[0]
	}
	host, _, err := splitAddress(c.Node)
	if err != nil {
		return err
	}
	if c.Join = slices.Clone(c.Join); !slices.Contains(c.Join, c.Node) {
		if len(c.Join)%2 == 1 {
			return fmt.Errorf("%w: %s is not among the %d addresses to join", ErrConfig, c.Node, len(c.Join))
		}
		c.Join = append(c.Join, c.Node)
	}
	slices.Sort(c.Join)
	c.Join = slices.Compact(c.Join)
	if len(c.Join) != 3 && len(c.Join) != 5 {
		return fmt.Errorf("%w: it has %d nodes with this one; name three or five, of which one or two may fail", ErrConfig, len(c.Join))
	}
	if c.Secret == "" && c.TLS == nil && !(loopback(host) && !slices.ContainsFunc(c.Join, func(a string) bool { h, _, _ := splitAddress(a); return !loopback(h) })) {
		return fmt.Errorf("%w: other machines can reach it; give all nodes the same secret with --cluster-secret-file, or certificates with --cluster-cert, --cluster-key and --cluster-ca", ErrConfig)
	}
	if c.Secret != "" && len(c.Secret) < 16 {
		return fmt.Errorf("%w: its secret has %d bytes; use at least 16 that are random", ErrConfig, len(c.Secret))
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// pass returns what nodes show each other on their routes. It depends on the list of
// nodes as well as on the secret: a node with another list would be counted as one of
// the cluster's, and as missing ever after.
func (c *Config) pass() string {
	h := hmac.New(sha256.New, []byte(c.Secret))
	h.Write([]byte(c.Cluster + "\n" + strings.Join(c.Join, "\n")))
	return hex.EncodeToString(h.Sum(nil))
}

func splitAddress(a string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(a)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || host == "" || port <= 0 || port > 65535 {
		return "", 0, fmt.Errorf("%w: %q is not an address; write it like 10.0.0.1:7374", ErrConfig, a)
	}
	return host, port, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ofThisMachine reports whether a host is this machine, by its name or one of its
// addresses.
func ofThisMachine(host string) bool {
	if name, err := os.Hostname(); loopback(host) || err == nil && name == host {
		return true
	}
	ips, _ := net.LookupIP(host) // a host that is unknown yet is not this one
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && slices.ContainsFunc(ips, n.IP.Equal) {
			return true
		}
	}
	return false
}
