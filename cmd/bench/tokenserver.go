package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm/openai"
	"github.com/perdure/perdure/server"
)

// tokenServer is a measured process of tokens: the API with an agent and a worker, the
// API alone (api), or a bare proxy. It prints its address and serves until it is
// killed.
func tokenServer(kind, model, store string) error {
	ctx := context.Background()
	var s *http.Server
	switch kind {
	case "proxy":
		to, err := url.Parse(model)
		if err != nil {
			return err
		}
		s = &http.Server{Handler: &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			// Read at once: a model that answers before the transport has seen the
			// body's end would break the connection.
			body, _ := io.ReadAll(r.In.Body) // what is missing is missed by the model
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		}}}
	default:
		if !isPostgres(store) {
			countSyncs()
		}
		talk := agent.NewFlow("talk", agent.New("talk", openai.Model("m", openai.BaseURL(model+"/v1"), openai.Key("none")), agent.Options{}))
		rt, err := perdure.Open(ctx, store, talk)
		if err != nil {
			return err
		}
		if kind != "api" {
			go func() {
				if err := rt.Work(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "worker:", err)
				}
			}()
		}
		s = server.New(rt, server.Options{}).HTTPServer()
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler)
	mux.HandleFunc("/bench/usage", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(used()) })
	mux.HandleFunc("/bench/profile", pprof.Profile)
	s.Handler = mux
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// usage is what a process has used so far.
type usage struct {
	CPU    time.Duration
	Memory int64 // the most resident bytes
	Syncs  int64 // of files of sqlitestore
}

// used returns what this process has used, where the system counts it.
func used() usage {
	return usage{CPU: cpuTime(), Memory: mostMemory("self"), Syncs: syncCount.Load()}
}

// mostMemory returns the most resident bytes that a process had, 0 where the system
// does not tell.
func mostMemory(pid string) int64 {
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(f[0]), 10, 64)
	return kib << 10
}

var syncCount atomic.Int64

// countSyncs puts a counter between SQLite and the driver's layer over the file
// system.
func countSyncs() {
	const name = "perdure"
	vfs.Register(name, countedDisk{vfs.Find(name).(vfs.VFSFilename)})
}

type countedDisk struct{ vfs.VFSFilename }

// OpenFilename implements vfs.VFSFilename.
func (d countedDisk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if shared, ok := f.(vfs.FileSharedMemory); ok && err == nil {
		f = countedFile{shared}
	}
	return f, flags, err
}

type countedFile struct{ vfs.FileSharedMemory }

// Unwrap implements vfs.FileUnwrap, by which sqlitestore finds its WAL.
func (f countedFile) Unwrap() vfs.File { return f.FileSharedMemory }

func (f countedFile) Sync(flags vfs.SyncFlag) error {
	syncCount.Add(1)
	return f.FileSharedMemory.Sync(flags)
}
