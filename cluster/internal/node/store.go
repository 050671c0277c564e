package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

// Scheme is that of the URL of a cluster's store, cluster:DIR, where DIR is the folder
// of a node that runs on this machine.
const Scheme = "cluster"

func init() { store.Register(Scheme, open) }

// running holds the nodes of this process by their folders.
var running sync.Map

// MissingError says which nodes are missing, so that the store of a cluster could not be
// made, or does not answer.
type MissingError struct {
	Nodes   int      `json:"nodes"`
	Missing []string `json:"missing"`
	Refused bool     `json:"refused"` // a node was refused lately, or refused this one
	Worked  bool     `json:"worked"`  // the cluster has worked since this node began
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%d of %d nodes of the cluster are here; missing: %s", e.Nodes-len(e.Missing), e.Nodes, strings.Join(e.Missing, ", "))
	switch {
	case e.stops():
		text += fmt.Sprintf("; it needs %d to work, and all %d until it has worked once, so start them", e.needs(), e.Nodes)
	case e.Worked:
		text += "; the others go on once they have elected a leader, in some seconds"
	default:
		text += fmt.Sprintf("; if it has never worked, or one of them has lost its folder, it needs all %d, so start them", e.Nodes)
	}
	if e.Refused {
		text += "; one of them and this node refuse each other: " + differ
	}
	return text
}

func (e *MissingError) Unwrap() error { return store.ErrUnavailable }

// needs returns how many nodes a cluster needs to work.
func (e *MissingError) needs() int { return e.Nodes/2 + 1 }

// stops reports whether too few nodes are left.
func (e *MissingError) stops() bool { return e.Nodes-len(e.Missing) < e.needs() }

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
	d := &door{dir: dir}
	missing := func() error {
		if n, ok := running.Load(dir); ok {
			return n.(*Node).misses()
		}
		return d.ask(id.Node)
	}
	gone, ok := errors.AsType[*MissingError](missing())
	if ok && (gone.stops() || first(dir)) { // no need to try, or no time: somebody may ask who is missing
		return nil, gone
	}
	s, err := natsstore.Open(ctx, "nats://127.0.0.1", natsstore.Options{Replicas: id.Nodes, SyncAlways: true, Connection: d.options()})
	switch {
	case err == nil:
		n, _ := running.Load(dir)
		own, _ := n.(*Node)
		return &handle{s, own, missing, d.room}, nil
	case errors.Is(err, nats.ErrNoServers):
		return nil, fmt.Errorf("%w: no node runs in %s; start it", store.ErrUnavailable, dir)
	case errors.Is(err, natsstore.ErrLogin): // it is being restarted, or another program has its port
		return nil, fmt.Errorf("%w: the node in %s does not let this process in: %w", store.ErrUnavailable, dir, err)
	case errors.Is(err, store.ErrUnavailable):
		return nil, cmp.Or(missing(), err)
	}
	return nil, err
}

// handle is a store that knows which nodes are missing.
type handle struct {
	store.Store
	node    *Node // of this process, if it is one
	missing func() error
	room    func(node string) string
}

var _ store.Warner = (*handle)(nil)

// Unwrap implements store.Wrapper.
func (h *handle) Unwrap() store.Store { return h.Store }

// Detail is what a server whose store does not respond tells those who ask, "" if all
// nodes are there.
func (h *handle) Detail() string {
	if gone, ok := errors.AsType[*MissingError](h.missing()); ok {
		return gone.Detail()
	}
	return ""
}

// Unready says why the node of this process is not ready although the store answers, "" if
// it is.
func (h *handle) Unready() string {
	if h.node != nil && h.node.behind() {
		return "this node is fetching what it has missed; until it has, no other node should be stopped"
	}
	return ""
}

// Warnings implements store.Warner. The node knows sooner than the store who is missing,
// and also without a quorum. Who is not, and yet down for the store, keeps nothing more.
func (h *handle) Warnings(ctx context.Context) ([]store.Warning, error) {
	found, err := store.Warnings(ctx, h.Store)
	gone, ok := errors.AsType[*MissingError](h.missing())
	if !ok {
		return h.explain(found), err
	}
	found = slices.DeleteFunc(found, func(w store.Warning) bool { return w.Kind == store.WarnNode })
	for _, address := range gone.Missing {
		found = append(found, store.Warning{Kind: store.WarnNode,
			Detail: fmt.Sprintf("node %s is missing: %d of %d nodes of the cluster are here, and with fewer than %d all writes stop", address, gone.Nodes-len(gone.Missing), gone.Nodes, gone.needs()),
			Fix:    "start it again: it fetches what it has missed; if its folder is lost, start it with an empty one; if it runs, its log says why it is not here, such as another --join or another secret"})
	}
	return found, nil
}

// explain says of nodes that are here why the store takes them for down.
func (h *handle) explain(found []store.Warning) []store.Warning {
	for i, w := range found {
		name, rest, _ := strings.Cut(strings.TrimPrefix(w.Detail, "server "), " is down")
		if w.Kind != store.WarnNode || rest == "" {
			continue
		}
		switch h.room(name) {
		case isFull:
			found[i] = store.Warning{Kind: store.WarnSpace,
				Detail: fmt.Sprintf("node %s runs, but has no space left for the store, so that it keeps nothing more%s", name, rest),
				Fix:    "make room on its disk, or raise its --max-disk, and restart it: it takes its limit when it starts, and then fetches what it has missed"}
		case hasRoom:
			found[i].Detail = fmt.Sprintf("node %s runs, but its copy of the store is not up to date%s", name, rest)
			found[i].Fix = "wait a moment, as it may be catching up; then look at its log, and restart it"
		}
	}
	return found
}
