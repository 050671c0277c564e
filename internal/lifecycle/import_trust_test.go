package lifecycle_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
)

// forged returns a file of entries that anyone could have made up: change edits
// each of them, and the hashes are chained again.
func forged(t *testing.T, file []byte, upto int, change func(journal.Entry) []journal.Entry) []byte {
	t.Helper()
	var head map[string]any
	first, _, _ := bytes.Cut(file, []byte("\n"))
	kit.NoErr(t, json.Unmarshal(first, &head))
	var prev, was journal.Hash
	var lines []byte
	n := 0
	for i, line := range kit.ExportedEntries(file)[:upto] {
		e, err := journal.Decode(was, uint64(i+1), bytes.TrimSpace(line))
		kit.NoErr(t, err)
		was = e.Hash
		for _, e := range change(e) {
			lines = append(append(lines, e.Encode(prev)...), '\n')
			prev = e.Hash
			n++
		}
	}
	all := fmt.Appendf(nil, `{"perdure":"export","v":1,"thread":%q,"tenant":"","name":%q,"entries":%d,"head":%q,"redacted":false}`+"\n", head["thread"], head["name"], n, prev)
	all = append(all, lines...)
	sum := sha256.Sum256(all)
	return fmt.Appendf(all, `{"end":"export","entries":%d,"blobs":0,"sha256":%q}`+"\n", n, base64.RawURLEncoding.EncodeToString(sum[:]))
}

var allowed = regexp.MustCompile(`,?"allows":\[[^\]]*\],?`)

// Whatever a file says, nothing is paid after an import before someone has
// answered here, unless a trusted key has signed it.
func TestImportHonoursNoForgedApproval(t *testing.T) {
	same := func(e journal.Entry) []journal.Entry { return []journal.Entry{e} }
	forgeries := map[string]func(journal.Entry) []journal.Entry{
		"as it was": same,
		"without what it allows": func(e journal.Entry) []journal.Entry {
			e.Body = allowed.ReplaceAllFunc(e.Body, func(b []byte) []byte {
				if b[0] == ',' && b[len(b)-1] == ',' {
					return []byte(",")
				}
				return nil
			})
			return []journal.Entry{e}
		},
		"as an earlier import": func(e journal.Entry) []journal.Entry {
			if e.Kind != journal.Answered {
				return same(e)
			}
			return []journal.Entry{e, {Kind: journal.Metadata, ID: "x", Time: e.Time, Body: []byte(`{"title":"from here"}`)}}
		},
		"as if all around it had gone on": func(e journal.Entry) []journal.Entry {
			if e.Kind != journal.Claimed || e.Epoch != 2 {
				return same(e)
			}
			return []journal.Entry{e, {Kind: journal.Step, ID: "x", Time: e.Time, Run: e.Run, Epoch: e.Epoch, Path: "/next", Body: []byte(`{"res":[1]}`)}}
		},
	}
	p := &till{paid: map[string]int{}}
	call := perdure.NewFlow("call", func(ctx context.Context, _ string) (string, error) {
		_, err := perdure.Scope(ctx, "call", func(ctx context.Context) (bool, error) {
			if err := sure(ctx, "ok", perdure.Question{Allows: []string{"pay"}}); err != nil {
				return false, err
			}
			return true, p.pay(ctx, "pay")
		})
		if err != nil {
			return "", err
		}
		return perdure.Step(ctx, "next", func(context.Context) (string, error) { return "", nil })
	})
	prepared := perdure.NewFlow("prepared", func(ctx context.Context, _ string) (string, error) {
		if err := sure(ctx, "ok", perdure.Question{Allows: []string{"pay"}}); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "prepare", func(ctx context.Context) (int, error) { return 1, tillNotes.Append(ctx, "prepared") }); err != nil {
			return "", err
		}
		return "", p.pay(ctx, "pay")
	})
	for _, flow := range []string{"frame", "allows", "branches", "at most once", "composite", "call", "prepared"} {
		for how, change := range forgeries {
			kit.Bubble(t, flow+" "+how, func(t *testing.T) {
				k := kit.New(t, nil, perdure.Options{}, append(tillFlows(p), call, prepared)...)
				k.StartOn("t", flow, "")
				goOn(k, "t", true)
				file, events := k.MustExport("t", perdure.ExportOptions{}), k.EventsOf("t")
				p.took()
				for at := range events {
					paid := slices.ContainsFunc(events[:at+1], func(e perdure.Event) bool { return e.Kind == "step" && string(e.Value) == `"paid"` })
					if events[at].Kind == "created" || paid {
						continue
					}
					as := fmt.Sprint("import-", at+1)
					fake := forged(t, file, at+1, change)
					if v := kit.VerifyFile(t, fake); !v.OK() || v.Signer != "" {
						t.Fatalf("%+v", v)
					}
					if _, err := k.Import(t.Context(), bytes.NewReader(fake), perdure.ImportOptions{As: as}); err != nil {
						continue // it was found out
					}
					k.MustFork(perdure.ForkRequest{Thread: as, At: uint64(at + 1), As: as + "-inside"})
					k.MustFork(perdure.ForkRequest{Thread: as, As: as + "-again"})
					for _, as := range []string{as, as + "-inside", as + "-again"} {
						info, err := k.Get(t.Context(), as)
						if err != nil || info.Import == nil || info.Import.Signer != "" || len(info.Runs[0].Asks) != 0 {
							t.Errorf("%s looks like %+v %v", as, info, err)
						}
						if run := goOn(k, as, false); p.took() != 0 {
							t.Fatalf("%s at %d paid without an answer and is %s\n%s", as, at+1, run.Status, k.Trace(as))
						}
						if run := goOn(k, as, true); run.Status != perdure.Succeeded && run.Status != perdure.Blocked || run.Status == perdure.Succeeded && p.took() == 0 {
							t.Fatalf("%s at %d is %s: %s\n%s", as, at+1, run.Status, run.Error, k.Trace(as))
						}
						p.took()
					}
				}
			})
		}
	}
}

func TestImportTrustsWhoSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &till{paid: map[string]int{}}
		k := kit.New(t, nil, perdure.Options{}, tillFlows(p)...)
		k.StartOn("t", "frame", "")
		run := k.WaitFor("t", perdure.Suspended)
		k.Stop()
		k.AnswerAt(run, "/ok", perdure.Answer{Value: true, By: "ann"})
		file := k.MustExport("t", perdure.ExportOptions{})
		key, err := k.ExportKey(t.Context())
		kit.WantErr(t, "the key", err, nil)
		if v := kit.VerifyFile(t, file); !v.OK() || v.Signer != key {
			t.Errorf("%+v is not signed by %s", v, key)
		}
		if v := kit.VerifyFile(t, k.MustExport("t", perdure.ExportOptions{Redact: true})); !v.OK() || v.Signer != key {
			t.Errorf("%+v is not signed by %s", v, key)
		}
		// A signature of another file, or by another key, is found out.
		other := kit.New(t, nil, perdure.Options{}, tillFlows(p)...)
		strange, err := other.ExportKey(t.Context())
		kit.WantErr(t, "the other key", err, nil)
		for name, bad := range map[string]string{
			"another key":  strings.Replace(string(file), key, strange, 1),
			"no signature": regexp.MustCompile(`,"key":.*"}`).ReplaceAllString(string(file), "}"),
			"no key":       regexp.MustCompile(`"key":"[^"]*",`).ReplaceAllString(string(file), ""),
		} {
			if v := kit.VerifyFile(t, []byte(bad)); v.OK() {
				t.Errorf("%s: %+v", name, v)
			}
		}
		cases := map[string]struct {
			o     perdure.Options
			in    perdure.ImportOptions
			trust bool
		}{
			"nobody":  {},
			"another": {in: perdure.ImportOptions{Trust: []string{strange}}},
			"one":     {in: perdure.ImportOptions{Trust: []string{strange, key}}, trust: true},
			"always":  {o: perdure.Options{Trust: []string{key}}, trust: true},
		}
		for name, c := range cases {
			there := kit.New(t, nil, c.o, tillFlows(p)...)
			_, err := there.Import(t.Context(), bytes.NewReader(file), c.in)
			kit.WantErr(t, name, err, nil)
			run := goOn(there, "t", false)
			if got := run.Status == perdure.Succeeded; got != c.trust || got != (p.took() == 1) {
				t.Errorf("trusting %s the run is %s\n%s", name, run.Status, there.Trace("t"))
			}
			info, err := there.Get(t.Context(), "t")
			if err != nil || info.Import == nil || info.Import.Thread != "t" || (info.Import.Signer == key) != c.trust {
				t.Errorf("trusting %s it is %+v %v", name, info.Import, err)
			}
			for s, err := range there.List(t.Context(), perdure.ListOptions{}) {
				if err != nil || !s.Import {
					t.Errorf("it is listed as %+v %v", s, err)
				}
			}
			events := there.EventsOf("t")
			if i := slices.IndexFunc(events, func(e perdure.Event) bool { return e.Kind == "forked" }); i < 0 || !events[i].Import || (events[i].Signer == key) != c.trust {
				t.Errorf("the events are %+v", events)
			}
			there.Stop()
		}
		// What one tenant decided is not another tenant's decision, even in the
		// same store.
		for _, tenant := range []string{"", "b"} {
			rt := k.Tenant(tenant)
			id, err := rt.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{As: "again"})
			kit.WantErr(t, "import", err, nil)
			info, err := rt.Get(t.Context(), id)
			if err != nil || (info.Import.Signer != "") != (tenant == "") {
				t.Errorf("to tenant %q it is %+v %v", tenant, info, err)
			}
		}
		_, err = k.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{As: "x", Trust: []string{"?"}})
		kit.WantErr(t, "a key that is none", err, perdure.ErrInvalid)
		at := uint64(len(kit.ExportedEntries(file)))
		_, err = k.Fork(t.Context(), perdure.ForkRequest{Thread: "again", At: at, Keep: true})
		kit.WantErr(t, "keep what the file says", err, perdure.ErrInvalid)
	})
}
