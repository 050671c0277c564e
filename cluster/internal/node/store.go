package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

// Scheme is that of the URL of a cluster's store, cluster:DIR, where DIR is the folder
// of a node that runs on this machine.
const Scheme = "cluster"

func init() { store.Register(Scheme, open) }

// running holds the nodes of this process by their folders.
var running sync.Map

// MissingError says that a cluster has never been complete, so that its store could not
// be made.
type MissingError struct {
	Nodes   int
	Missing []string
	Refused bool // a node was refused lately, or refused this one
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%d of %d nodes of the cluster are here; missing: %s", e.Nodes-len(e.Missing), e.Nodes, strings.Join(e.Missing, ", "))
	if e.Refused {
		text += "; one of them and this node refuse each other: " + differ
	}
	return text
}

func (e *MissingError) Unwrap() error { return store.ErrUnavailable }

// Detail is what a server that is not ready tells those who ask.
func (e *MissingError) Detail() string { return e.Error() }

// first reports whether the store of a node of this process is opened for the first
// time.
func first(dir string) bool {
	n, ok := running.Load(dir)
	return ok && n.(*Node).asked.CompareAndSwap(false, true)
}

func open(ctx context.Context, url string) (store.Store, error) {
	dir, err := filepath.Abs(strings.TrimPrefix(url, Scheme+":"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	id, err := readIdentity(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not the folder of a node; name that of a node on this machine, which it was given with --dir", store.ErrInvalid, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	missing := func() error {
		v, ok := running.Load(dir)
		if !ok {
			return nil
		}
		n := v.(*Node)
		gone := n.Missing()
		if len(gone) == 0 {
			return nil
		}
		return &MissingError{id.Nodes, gone, n.logger.refuses()}
	}
	gone, ok := errors.AsType[*MissingError](missing())
	if ok && (2*len(gone.Missing) >= id.Nodes || first(dir)) { // no need to try, or no time: somebody may ask who is missing
		return nil, gone
	}
	s, err := natsstore.Open(ctx, "nats://127.0.0.1", natsstore.Options{Replicas: id.Nodes, SyncAlways: true, Connection: (&door{dir: dir}).options()})
	if gone := missing(); errors.Is(err, store.ErrUnavailable) && gone != nil {
		return nil, gone
	}
	if errors.Is(err, natsstore.ErrLogin) { // it is being restarted, or another program has its port
		return nil, fmt.Errorf("%w: the node in %s does not let this process in: %w", store.ErrUnavailable, dir, err)
	}
	if err != nil {
		return nil, err
	}
	return &handle{s, missing}, nil
}

// handle is a store that knows which nodes are missing.
type handle struct {
	store.Store
	missing func() error
}

// Unwrap implements store.Wrapper.
func (h *handle) Unwrap() store.Store { return h.Store }

// Detail is what a server whose store does not respond tells those who ask, "" if this
// process has no node, or all nodes are there.
func (h *handle) Detail() string {
	if gone, ok := errors.AsType[*MissingError](h.missing()); ok {
		return gone.Detail()
	}
	return ""
}
