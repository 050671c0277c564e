package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// seer is an agent that tells which images and files it sees, and asks a person for
// one if it sees none.
func seer() perdure.Flow {
	find := agent.NewTool("find", "Finds a picture.", func(context.Context, struct{}) (string, error) { return "nobody answered", nil },
		agent.NeedsApproval())
	model := llm.ModelFunc(func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			var seen []string
			for _, m := range r.Messages {
				for _, p := range m.Parts {
					media := []llm.Media{}
					if p.Media != nil {
						media = append(media, *p.Media)
					}
					if p.Result != nil {
						media = append(media, p.Result.Media...)
					}
					for _, m := range media {
						seen = append(seen, fmt.Sprintf("%s %s %d", m.MIME, m.Name, len(m.Data)))
					}
				}
			}
			if len(seen) == 0 {
				yield(llm.Delta{Call: &llm.Call{ID: "1", Name: "find", Args: "{}"}, Stop: llm.StopCalls}, nil)
				return
			}
			yield(llm.Delta{Text: strings.Join(seen, ", "), Stop: llm.StopEnd}, nil)
		}
	})
	return agent.NewFlow("seer", agent.New("seer", model, agent.Options{Tools: []agent.Tool{find}}))
}

// uploaded uploads a file.
func uploaded(s *servertest.Site, name, mime, data string, headers ...string) perdure.Upload {
	s.T.Helper()
	return servertest.Decode[perdure.Upload](s.Do("POST", "/v1/uploads?name="+name, data, append([]string{"Content-Type", mime}, headers...)...), 201)
}

// TestAnAgentSeesWhatWasUploaded: with its input, in a later message, and in the
// answer to what it asks; and people download it.
func TestAnAgentSeesWhatWasUploaded(t *testing.T) {
	s := servertest.New(t, server.Options{}, seer())
	wait := func(thread, want string) {
		t.Helper()
		run := servertest.Must(s.Runtime.WaitEnd(t.Context(), thread, ""))(t)
		var out string
		if json.Unmarshal(run.Output, &out) != nil || out != want {
			t.Fatalf("the agent says %s %s; want %q", run.Output, run.Error, want)
		}
	}
	png := strings.Repeat("pixels ", 100_000)
	a := uploaded(s, "a.png", "image/png", png)
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(png))); a.Blob != sum || a.Size != int64(len(png)) || a.MIME != "image/png" || a.Name != "a.png" || time.Until(a.Expires) < time.Hour {
		t.Errorf("%+v", a)
	}
	s.Do("POST", "/v1/threads/t/runs", fmt.Sprintf(`{"flow": "seer", "input": [{"text": "what is it?"}, {"media": {"blob": %q}}], "attach": [%q]}`, a.Blob, a.ID)).Want(202)
	wait("t", fmt.Sprintf("image/png a.png %d", len(png)))
	b := uploaded(s, "b.pdf", "application/pdf; charset=x", "%PDF")
	s.Do("POST", "/v1/threads/t/runs", fmt.Sprintf(`{"flow": "seer", "input": {"role": "user", "parts": [{"media": {"blob": %q, "name": "c.pdf"}}]}, "attach": [%q]}`, b.Blob, b.ID)).Want(202)
	wait("t", fmt.Sprintf("image/png a.png %d, application/pdf c.pdf 4", len(png)))

	run := s.Start("q", "seer", "show me")
	s.Do("POST", "/v1/asks/"+run.Asks[0].ID+"/answer", fmt.Sprintf(`{"decision": "respond", "value": [{"text": "here"}, {"media": {"blob": %q}}], "attach": [%q]}`, a.Blob, a.ID)).Want(200)
	wait("q", fmt.Sprintf("image/png a.png %d", len(png)))

	s.Do("DELETE", "/v1/uploads/"+a.ID, "").Want(204)
	s.Do("DELETE", "/v1/uploads/"+a.ID, "").Problem(404, "no-upload")
	got := s.Do("GET", "/v1/blobs/t/"+a.Blob, "").Want(200)
	if string(got.Body) != strings.TrimSpace(png) || got.Header.Get("Content-Type") != "image/png" || got.Header.Get("Content-Disposition") != "attachment" {
		t.Errorf("%d bytes, %v", len(got.Body), got.Header)
	}
	s.Do("GET", "/v1/blobs/t/"+strings.Repeat("0", 64), "").Problem(404, "not-found")
	s.Do("DELETE", "/v1/threads/t", "").Want(204)
	s.Do("GET", "/v1/blobs/t/"+a.Blob, "").Problem(404, "no-thread")
}

// TestUploadsOfOthers: nobody reaches what is another user's or tenant's.
func TestUploadsOfOthers(t *testing.T) {
	everything := []api.Scope{api.ScopeRead, api.ScopeRun}
	s := servertest.New(t, server.Options{Auth: servertest.People{
		"ann":   {Subject: "ann", User: "ann", Scopes: everything},
		"bob":   {Subject: "bob", User: "bob", Scopes: everything},
		"staff": {Subject: "staff", Scopes: everything},
		"other": {Subject: "ann", Tenant: "other", Scopes: everything},
		"write": {Subject: "ann", User: "ann", Scopes: []api.Scope{api.ScopeRun}},
		"read":  {Subject: "ann", User: "ann", Scopes: []api.Scope{api.ScopeRead}},
	}}, seer())
	as := func(token string) *servertest.Site { s.Token = token; return s }
	as("read").Do("POST", "/v1/uploads", "x").Problem(403, "scope")
	as("bob").Do("POST", "/v1/uploads?user=ann", "x").Problem(403, "scope")
	u := uploaded(as("ann"), "a.png", "image/png", "pixels")
	if again := uploaded(as("write"), "a.png", "image/png", "pixels"); u.User != "ann" || again.Blob != u.Blob || again.ID == u.ID {
		t.Errorf("%+v and %+v", u, again)
	}
	start := fmt.Sprintf(`{"flow": "seer", "input": [{"media": {"blob": %q}}], "attach": [%q]}`, u.Blob, u.ID)
	for _, token := range []string{"bob", "other"} {
		as(token).Do("POST", "/v1/threads/"+token+"/runs", start).Problem(404, "no-upload")
		as(token).Do("GET", "/v1/threads/"+token, "").Problem(404, "no-thread")
		as(token).Do("DELETE", "/v1/uploads/"+u.ID, "").Problem(404, "no-upload")
	}
	as("ann").Do("POST", "/v1/threads/ann/runs", start).Want(202)
	as("bob").Do("GET", "/v1/blobs/ann/"+u.Blob, "").Problem(404, "no-thread")
	as("other").Do("GET", "/v1/blobs/ann/"+u.Blob, "").Problem(404, "no-thread")
	as("ann").Do("GET", "/v1/blobs/ann/"+u.Blob, "").Want(200)
	as("staff").Do("POST", "/v1/threads/staff/runs", start).Want(202)

	// To name a file that the thread does not have helps nobody.
	as("bob").Do("POST", "/v1/threads/bob/runs", fmt.Sprintf(`{"flow": "seer", "input": [{"media": {"blob": %q}}]}`, u.Blob)).Want(202)
	if run := servertest.Must(s.Runtime.WaitEnd(t.Context(), "bob", ""))(t); run.Status != perdure.Failed || !strings.Contains(run.Error, "has no blob") {
		t.Errorf("%v %v", run.Status, run.Error)
	}
}

// TestBadUploads: what is refused leaves nothing behind.
func TestBadUploads(t *testing.T) {
	st := memstore.New()
	s := servertest.NewOn(t, st, server.Options{MaxUpload: 1 << 20, Body: 100 * time.Millisecond})
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	}
	uploaded(s, "a", "text/plain", "pixels", "Content-Digest", digest("pixels"))
	for cell := range st.List(t.Context(), "upload/", "") {
		s.Do("DELETE", "/v1/uploads/"+cell.Key[strings.LastIndexByte(cell.Key, '.')+1:], "").Want(204)
	}
	s.Do("POST", "/v1/uploads", "pixels", "Content-Digest", digest("other")).Problem(400, "invalid")
	s.Do("POST", "/v1/uploads", "pixels", "Content-Digest", "sha-512=:AAAA:").Problem(400, "invalid")
	s.Do("POST", "/v1/uploads", "pixels", "Content-Encoding", "gzip").Problem(415, "media-type")
	s.Do("POST", "/v1/uploads", "pixels", "Content-Type", "image").Problem(415, "media-type")
	s.Do("POST", "/v1/uploads", "pixels", "Content-Type", "image/*").Problem(415, "media-type")
	for _, form := range []string{"multipart/form-data; boundary=x", "Multipart/Mixed; boundary=x"} {
		if p := s.Do("POST", "/v1/uploads", "--x\r\n\r\npixels\r\n--x--\r\n", "Content-Type", form).Problem(415, "media-type"); !strings.Contains(string(p.Body), "--data-binary @FILE") {
			t.Errorf("%s is refused with %s", form, p.Body)
		}
	}
	s.Do("POST", "/v1/uploads?name=../../etc/passwd", "pixels").Problem(400, "invalid")
	s.Do("POST", "/v1/uploads?name=a%00b", "pixels").Problem(400, "invalid")
	s.Do("POST", "/v1/uploads?path=x", "pixels").Problem(400, "invalid")
	s.Do("POST", "/v1/uploads", "pixels", "Idempotency-Key", "k").Problem(400, "invalid")
	s.Do("POST", "/v1/uploads", strings.Repeat("x", 1<<20+1)).Problem(413, "body-too-large")
	s.Do("POST", "/v1/uploads", strings.Repeat("x", 1<<20)).Want(201)
	for cell := range st.List(t.Context(), "upload/", "") {
		s.Do("DELETE", "/v1/uploads/"+cell.Key[strings.LastIndexByte(cell.Key, '.')+1:], "").Want(204)
	}
	// Without a length, it is only known at the end.
	r := servertest.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/uploads", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1<<20+1))}))(t)
	servertest.ReplyOf(t, servertest.Must(http.DefaultClient.Do(r))(t)).Problem(413, "body-too-large")
	// A sender that is too slow, and one that leaves.
	for _, leave := range []bool{false, true} {
		conn, sent := slowDial(t, s.URL), 100
		if leave {
			sent = 400_000
		}
		fmt.Fprintf(conn, "POST /v1/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600000\r\n\r\n%s", strings.Repeat("x", sent))
		if leave {
			eventually(t, "the beginning is not stored", func() bool { return cellsOf(st, "uploaded/") > 0 })
			conn.Close()
		} else if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("a body that does not arrive is answered %v %v", resp, err)
		}
		eventually(t, "the upload is not cleared away", func() bool { return cellsOf(st, "upload") == 0 })
	}
	if n := cellsOf(st, "upload"); n > 0 {
		t.Errorf("%d cells are left", n)
	}
}

func cellsOf(s store.Store, prefix string) (n int) {
	for range s.List(context.Background(), prefix, "") {
		n++
	}
	return n
}

// sink keeps no bytes of uploads.
type sink struct{ store.Store }

// Put forgets the chunks.
func (s sink) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "uploaded/") && strings.Contains(key, "/c/") {
		return "1", nil
	}
	return s.Store.Put(ctx, key, value, prev)
}

// flood is a body of so many bytes that notes how much memory is in use meanwhile.
type flood struct {
	left int64
	n    byte
	most uint64
}

// Read implements io.Reader.
func (f *flood) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), f.left)]
	for i := range p {
		p[i] = f.n
	}
	f.n++
	if f.left -= int64(len(p)); f.left>>20 != (f.left+int64(len(p)))>>20 {
		f.most = max(f.most, inUse())
	}
	return len(p), nil
}

// inUse returns the bytes of memory that the heap takes.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() + sample[1].Value.Uint64()
}

// TestAnUploadIsNotHeldInMemory uploads 200 MiB.
func TestAnUploadIsNotHeldInMemory(t *testing.T) {
	const size, most = 200 << 20, 48 << 20
	s := servertest.NewOn(t, sink{memstore.New()}, server.Options{MaxUpload: size})
	c := servertest.Must(client.New(s.URL, client.Options{}))(t)
	debug.FreeOSMemory()
	before, body := inUse(), &flood{left: size}
	u := servertest.Must(c.Upload(t.Context(), body, perdure.UploadRequest{Name: "large"}))(t)
	if u.Size != size || body.most > before+most {
		t.Errorf("%d bytes took %d MiB", u.Size, (body.most-before)>>20)
	}
	if _, err := c.Upload(t.Context(), &flood{left: size + 1}, perdure.UploadRequest{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("over")) {
		t.Error(err)
	}
}
