package natsstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/powercut"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/storetest"
)

// inside holds the servers of this process by their folders. A server ends with the
// last handle on its store.
var inside struct {
	sync.Mutex
	servers map[string]*insideServer
}

type insideServer struct {
	url     string
	stop    func()
	handles int
}

// insideStore is a store whose server is in the same process.
type insideStore struct {
	*natsstore.Store
	once sync.Once
	end  func()
}

func (s *insideStore) Close() error {
	err := s.Store.Close()
	s.once.Do(s.end)
	return err
}

func openInside(ctx context.Context, dir string) (store.Store, error) {
	inside.Lock()
	defer inside.Unlock()
	if inside.servers == nil {
		inside.servers = map[string]*insideServer{}
	}
	server := inside.servers[dir]
	if server == nil {
		url, stop, err := natstest.Inside(dir)
		if err != nil {
			return nil, err
		}
		server = &insideServer{url: url, stop: stop}
		inside.servers[dir] = server
	}
	server.handles++
	end := func() {
		if server.handles--; server.handles == 0 {
			delete(inside.servers, dir)
			server.stop()
		}
	}
	// A minute tells a server that waits for a busy disk from one that never answers.
	s, err := natsstore.Open(ctx, server.url, natsstore.Options{SyncAlways: true, Timeout: time.Minute})
	if err != nil {
		end()
		return nil, err
	}
	return &insideStore{Store: s, end: func() {
		inside.Lock()
		defer inside.Unlock()
		end()
	}}, nil
}

// TestRealPowerCuts cuts the power of the disk under a server that always syncs.
func TestRealPowerCuts(t *testing.T) {
	storetest.PowerCut(t, openInside, powercut.New, powercut.Options())
}
