package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// Options say where the console is. The zero value is ready to use for a console
// at /console/ with the API at /v1.
type Options struct {
	// Base is the path of the console as browsers see it, with a slash at both
	// ends. The default is /console/.
	Base string
	// API is the path below which browsers find v1, with a slash at both ends. The
	// default is /.
	API string
}

// Handler returns the console.
func Handler(o Options) http.Handler {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is constant
	}
	return newSite(built, o)
}

// site serves the files of a build.
type site struct {
	base  string
	index []byte // index.html, but for the nonce
	etag  string // of index
	files map[string]*file
}

// file is a file of the build as it is sent.
type file struct {
	kind string
	etag string
	data []byte
	gzip func() []byte // nil: not smaller
}

const (
	nonceMark = "__NONCE__"
	apiMark   = "__API__"
	indexFile = "index.html"
	assets    = "assets/" // names of files there have a hash of their contents
)

// kinds are the media types by file ending. Those of package mime depend on the
// system.
var kinds = map[string]string{
	".css":         "text/css; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".ico":         "image/x-icon",
	".js":          "text/javascript; charset=utf-8",
	".json":        "application/json",
	".map":         "application/json",
	".png":         "image/png",
	".svg":         "image/svg+xml",
	".txt":         "text/plain; charset=utf-8",
	".wasm":        "application/wasm",
	".webmanifest": "application/manifest+json",
	".woff2":       "font/woff2",
}

// packed are endings of files that are compressed already.
var packed = map[string]bool{".ico": true, ".png": true, ".woff2": true}

// newSite panics if the build cannot be read: it is part of the program.
func newSite(built fs.FS, o Options) *site {
	s := &site{base: slashed(cmp.Or(o.Base, "/console/")), files: map[string]*file{}}
	err := fs.WalkDir(built, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(built, name)
		if err != nil {
			return err
		}
		if name == indexFile {
			at := html.EscapeString(s.base)
			text := strings.NewReplacer(`="/console/`, `="`+at, `="./`, `="`+at, apiMark, html.EscapeString(slashed(cmp.Or(o.API, "/")))).Replace(string(data))
			s.index, s.etag = []byte(text), "W/"+etag([]byte(text))
			return nil
		}
		end := path.Ext(name)
		f := &file{kind: cmp.Or(kinds[end], "application/octet-stream"), etag: etag(data), data: data}
		if !packed[end] {
			f.gzip = sync.OnceValue(func() []byte {
				if small := compress(data, gzip.BestCompression); len(small) < len(data) {
					return small
				}
				return nil
			})
		}
		s.files[name] = f
		return nil
	})
	if err != nil || s.index == nil {
		panic("console: the build has no " + indexFile)
	}
	return s
}

// slashed returns a path with a slash at both ends.
func slashed(p string) string {
	if p = strings.Trim(p, "/"); p == "" {
		return "/"
	}
	return "/" + p + "/"
}

func etag(data []byte) string {
	sum := sha256.Sum256(data)
	return strconv.Quote(hex.EncodeToString(sum[:12]))
}

func compress(data []byte, level int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		panic(err) // there is no such level
	}
	w.Write(data) // a buffer takes everything
	w.Close()
	return b.Bytes()
}

// ServeHTTP serves a file of the build, or the page for every other path.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console is only read; its API is elsewhere", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == s.base {
		http.Redirect(w, r, s.base, http.StatusPermanentRedirect)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, s.base)
	if !below {
		name = strings.TrimPrefix(r.URL.Path, "/")
	}
	if f := s.files[name]; f != nil {
		s.send(w, r, f, strings.HasPrefix(name, assets))
		return
	}
	if name != indexFile && !page(r, name) {
		http.NotFound(w, r)
		return
	}
	s.sendIndex(w, r)
}

// page reports whether the page is at a path without a file: an id in the path may
// have dots, but a script that is missing must not look like one.
func page(r *http.Request, name string) bool {
	if strings.HasPrefix(name, assets) {
		return false
	}
	return path.Ext(name) == "" || strings.Contains(r.Header.Get("Accept"), "text/html")
}

func (s *site) send(w http.ResponseWriter, r *http.Request, f *file, hashed bool) {
	h := w.Header()
	h.Set("ETag", f.etag)
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // if it is opened as a document
	h.Set("Cache-Control", "no-cache")
	if hashed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	data := f.data
	if f.gzip != nil {
		h.Add("Vary", "Accept-Encoding")
		if takesGzip(r) {
			if small := f.gzip(); small != nil {
				data = small
				h.Set("Content-Encoding", "gzip")
				h.Set("ETag", strings.TrimSuffix(f.etag, `"`)+`-gzip"`)
			}
		}
	}
	answer(w, r, data)
}

// sendIndex sends the page. A cached copy keeps the nonce and the policy that it
// came with, so a browser that has it is told nothing new about them.
func (s *site) sendIndex(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", s.etag)
	h.Add("Vary", "Accept-Encoding")
	if known(r, s.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	nonce := rand.Text()
	h.Set("Content-Type", kinds[".html"])
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; img-src 'self' data: blob:; font-src 'self'; "+
		"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
	h.Set("X-Frame-Options", "DENY")
	data := bytes.ReplaceAll(s.index, []byte(nonceMark), []byte(nonce))
	if takesGzip(r) {
		data = compress(data, gzip.DefaultCompression)
		h.Set("Content-Encoding", "gzip")
	}
	answer(w, r, data)
}

// answer sends data, unless the client has it or wants only the headers.
func answer(w http.ResponseWriter, r *http.Request, data []byte) {
	h := w.Header()
	if known(r, h.Get("ETag")) {
		h.Del("Content-Type")
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method == http.MethodGet {
		w.Write(data) // the client may be gone
	}
}

// known reports whether the client has what a tag stands for.
func known(r *http.Request, tag string) bool {
	for given := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if given = strings.TrimSpace(given); given == "*" || given != "" && strings.TrimPrefix(given, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// takesGzip reports whether the client accepts gzip.
func takesGzip(r *http.Request) bool {
	for given := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(given, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, weighed := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !weighed || err == nil && weight > 0
		}
	}
	return false
}
