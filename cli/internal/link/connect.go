// Package link connects a command to what it works on: a server, or a store whose
// API it serves to itself. It imports packages client and server and what they stand
// on, and the exit codes and the terminal of the command line.
package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"   // file: URLs
	_ "github.com/perdure/perdure/store/memstore"    // memory: URLs
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
)

// Where dev keeps everything, and where it listens.
const (
	DevFolder  = ".perdure"
	DevFile    = DevFolder + "/perdure.db"
	DevURL     = "sqlite:" + DevFile
	DevAddress = "127.0.0.1:7373"
)

// How often in a row a server is tried again: for half a minute, and for minutes by
// who follows a run, since a deploy may take as long.
const (
	patience       = 17
	streamPatience = 100
)

// Connector finds the server or the store of a command. Its fields are the flags of
// all commands, and the program.
type Connector struct {
	Server, Store, Token, By string
	Archive                  string // URL of the archive of a store, "" for none
	Trust                    bool   // use a store in ./.perdure that was not made here
	Shared                   bool   // let a store be made in a folder that others can write to
	Verb                     string // name of the command; "" while a shell completes
	Begin                    bool   // create a store in ./.perdure if there is nothing to work on

	Program string // how people call the program
	Flows   []perdure.Flow
	Runtime perdure.Options
	Term    *terminal.Terminal
	Hint    func(format string, args ...any) // tells the person something

	// Attempts is how often in a row a server is tried again, as in client.Options; 0
	// means for minutes.
	Attempts int
	// Patience is how long the first answer of a server may take before it is asked
	// whether it is there at all, and how long that may take. 0: 5 seconds.
	Patience [2]time.Duration

	place archive.Place // of the runtime that was opened
}

// Link is what a command works on: a server, or the API of a store in this process.
type Link struct {
	Client  *client.Client
	Runtime *perdure.Runtime // of a store; nil with a server
	Close   func()
}

// Connect returns what the flags name: a server or a store. Without either it is
// ./.perdure: through the dev server that serves it if one is running, otherwise
// the store itself. In a folder without it, it is this user's dev server at the
// usual address, or else a new store there for a command that may begin one.
func (c *Connector) Connect(ctx context.Context) (*Link, error) {
	switch {
	case c.Server != "" && c.Store != "":
		return nil, exit.Usage(errors.New("give --server ($PERDURE_SERVER) or --store ($PERDURE_STORE), not both"))
	case c.Server != "":
		return c.Dial(c.Server, c.GivenToken())
	case c.Store != "":
		return c.Open(ctx, c.Store)
	case c.Token != "":
		return nil, exit.Usage(errors.New("name the server that the token is for with --server"))
	}
	if _, err := os.Stat(DevFile); err == nil {
		if l := c.DialDev(ctx, func(d DevRecord) bool { return d.Serves(DevFile) }); l != nil {
			return l, nil
		}
		return c.Open(ctx, DevURL)
	}
	var other DevRecord
	if l := c.DialDev(ctx, func(d DevRecord) bool { other = d; return d.Address == DevAddress }); l != nil {
		if other.Program == c.Program {
			c.Hint("on the dev server at http://%s, store %s", DevAddress, safe.Text(other.Store))
			return l, nil
		}
		if !c.Begin {
			return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("there is no store in ./%s; the dev server at %s belongs to %s: name it with --server http://%s if you mean it, or start your own with %s dev", DevFolder, DevAddress, safe.Text(other.Program), DevAddress, c.Program)}
		}
	}
	if c.Begin {
		c.Hint("a new store in ./%s", DevFolder)
		url, err := c.DevStore()
		if err != nil {
			return nil, err
		}
		return c.Open(ctx, url)
	}
	return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("you have no dev server at %s and there is no store in ./%s; start one with %s dev, or name one with --server or --store", DevAddress, DevFolder, c.Program)}
}

// Answers reports whether a Perdure server answers while the context lasts.
func (l *Link) Answers(ctx context.Context) bool {
	_, err := client.Do(ctx, l.Client, api.HealthGet, api.Nothing{})
	return err == nil
}

// GivenToken is the token for the server that a flag names.
func (c *Connector) GivenToken() string { return cmp.Or(c.Token, c.Term.Env("PERDURE_TOKEN")) }

// Dial returns a server. Without a token, a dev server of this user gets its secret.
func (c *Connector) Dial(address, token string) (*Link, error) {
	address = withScheme(address)
	if token == "" {
		token = c.devSecret(address)
	}
	t := c.newServerTransport()
	o := client.Options{Token: token, HTTP: &http.Client{Transport: &asTransport{c.By, t}}, Attempts: cmp.Or(c.Attempts, patience), StreamAttempts: cmp.Or(c.Attempts, streamPatience)}
	to, err := client.New(address, o)
	if err != nil {
		return nil, exit.Usage(err)
	}
	l := &Link{Client: to, Close: func() {}}
	t.probe = l.Answers
	return l, nil
}

// withScheme completes an address such as localhost:7373. Connections to other
// machines are encrypted unless the address says otherwise.
func withScheme(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.Contains(address, "/") {
		return address
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return "http://" + address
	}
	return "https://" + address
}

// Open serves the API of a store inside this process.
func (c *Connector) Open(ctx context.Context, url string) (*Link, error) {
	if err := c.Exists(url); err != nil {
		return nil, err
	}
	rt, closeStore, err := c.OpenRuntime(ctx, url, perdure.Options{})
	if err != nil {
		return nil, err
	}
	return c.Inside(rt, closeStore)
}

// Inside serves the API of a runtime to this process.
func (c *Connector) Inside(rt *perdure.Runtime, closeStore func()) (*Link, error) {
	srv := server.New(rt, server.Options{})
	h, stop := inproc.Serve(srv)
	h.Transport = &asTransport{c.By, h.Transport}
	to, err := client.New("http://localhost", client.Options{HTTP: h, Attempts: -1})
	if err != nil {
		return nil, err
	}
	return &Link{Client: to, Runtime: rt, Close: func() {
		srv.Close()
		stop()
		closeStore()
	}}, nil
}

// makes reports whether the command makes a missing store. For other commands its
// name is a mistake.
func (c *Connector) makes() bool {
	return strings.Contains(" dev serve worker run chat import create put ", " "+c.Verb+" ")
}

// Exists returns an error if a store is missing and the command does not make one.
func (c *Connector) Exists(url string) error {
	path, ok := SQLiteFile(url)
	if !ok {
		path = Folder(url)
	}
	if _, err := os.Stat(path); path == "" || !errors.Is(err, fs.ErrNotExist) || c.makes() {
		return nil
	}
	return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("there is no store %s", StoreName(url)), Next: "check its name; perdure dev, serve, worker, run and import create new ones"}
}

// asTransport names the caller where no token does.
type asTransport struct {
	as string
	http.RoundTripper
}

func (t *asTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.as != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Perdure-As", t.as)
	}
	return t.RoundTripper.RoundTrip(r)
}

// Work executes the runs of a store in this process until it is stopped. With a
// server it does nothing, since that has workers.
func (l *Link) Work(ctx context.Context) (stop func() error) {
	if l.Runtime == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.Runtime.Work(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// WorkBulk carries out the bulk jobs of a store in this process, but no runs, until it
// is stopped. With a server it does nothing.
func (l *Link) WorkBulk(ctx context.Context) (stop func()) {
	if l.Runtime == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { l.Runtime.WorkBulk(ctx) })
	return func() {
		cancel()
		working.Wait()
	}
}

// StoreHere returns the URL of the store that the flags name, or of the one that dev
// made in this folder.
func (c *Connector) StoreHere() (string, error) {
	if c.Store != "" {
		return c.Store, nil
	}
	if _, err := os.Stat(DevFile); err != nil {
		return "", exit.Usage(fmt.Errorf("name a store with --store, such as --store sqlite:perdure.db; there is none in ./%s", DevFolder))
	}
	return DevURL, nil
}

// OpenRuntime opens a store with the program's flows, and again whenever it fails. A
// store that nobody named is used only if it is known.
func (c *Connector) OpenRuntime(ctx context.Context, url string, o perdure.Options) (*perdure.Runtime, func(), error) {
	made := false
	if c.Store == "" {
		_, err := os.Stat(DevFile)
		made = errors.Is(err, fs.ErrNotExist)
	}
	s, err := store.Reopen(ctx, func(ctx context.Context) (store.Store, error) { return c.OpenURL(ctx, url, c.makes()) })
	if err != nil {
		return nil, nil, OpenError(url, err)
	}
	if c.Archive != "" && c.Runtime.Archive == nil {
		if o.Archive, err = openArchive(ctx, c.Archive, cmp.Or(o.Logger, c.Runtime.Logger)); err != nil {
			s.Close()
			return nil, nil, exit.Usage(fmt.Errorf("opening the archive: %w", err))
		}
	}
	all := c.runtimeOptions(o)
	if all.Logger == nil {
		s.(store.Notifier).Notify(c.tellOutage())
	}
	rt, err := perdure.New(ctx, s, all, c.Flows...)
	err = explained(s, err)
	if err == nil && c.Store == "" {
		err = c.checkKnown(ctx, rt, made)
	}
	if c.place = all.Archive; err == nil && all.Logger != nil {
		if err := c.CheckArchive(ctx, rt); err != nil {
			all.Logger.Error("what needs the archive fails until this is mended", "error", err)
		}
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return rt, func() { s.Close() }, nil
}

// OpenError says that a store did not open. A URL that no driver knows is a mistake of
// the caller.
func OpenError(url string, err error) *exit.Error {
	e := &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("opening the store %s: %w", StoreName(url), err)}
	if errors.Is(err, store.ErrScheme) {
		e.Code = exit.BadUsage
	}
	return e
}

// OpenURL opens a store, and creates one on a server only if it is to be made; for
// others see [Connector.Exists]. The flags say whether its folder may be shared.
func (c *Connector) OpenURL(ctx context.Context, url string, create bool) (store.Store, error) {
	if u, err := neturl.Parse(url); err == nil && (strings.HasPrefix(u.Scheme, "postgres") || strings.HasPrefix(u.Scheme, "redis") || u.Scheme == "upstash" || u.Scheme == "s3") && !create {
		q := u.Query()
		q.Set("existing", "true")
		u.RawQuery = q.Encode()
		url = u.String()
	}
	if servers, params, has := strings.Cut(url, "?"); (strings.HasPrefix(url, "nats:") || strings.HasPrefix(url, "tls:")) && !create { // several servers make no URL that can be parsed
		url = servers + "?existing=true"
		if has {
			url += "&" + params
		}
	}
	if c.Shared && (strings.HasPrefix(url, "sqlite:") || strings.HasPrefix(url, "file:")) {
		url = strings.TrimSuffix(url, store.SharedFolder) + store.SharedFolder
	}
	return store.Open(ctx, url)
}

// runtimeOptions returns the program's options with those of a command on top. Both
// observers are called.
func (c *Connector) runtimeOptions(o perdure.Options) perdure.Options {
	all := c.Runtime
	all.Logger = cmp.Or(o.Logger, all.Logger)
	if o.Archive != nil {
		all.Archive = o.Archive
	}
	all.Concurrency = cmp.Or(o.Concurrency, all.Concurrency)
	all.Lease = cmp.Or(o.Lease, all.Lease)
	if o.Retention != nil {
		all.Retention, all.RetentionRate = o.Retention, cmp.Or(o.RetentionRate, all.RetentionRate)
	}
	all.Observer = perdure.Observers(all.Observer, o.Observer)
	return all
}

// SQLiteFile returns the file of a SQLite URL.
func SQLiteFile(url string) (string, bool) {
	path, ok := strings.CutPrefix(strings.TrimSuffix(url, store.SharedFolder), "sqlite:")
	if rest, absolute := strings.CutPrefix(path, "///"); absolute {
		path = "/" + rest
	}
	return path, ok
}

// Folder returns the folder of a store on disk, "" of any other.
func Folder(url string) string {
	if file, ok := SQLiteFile(url); ok {
		return filepath.Dir(file)
	}
	if folder, ok := strings.CutPrefix(strings.TrimSuffix(url, store.SharedFolder), "file:"); ok {
		return folder
	}
	return ""
}
