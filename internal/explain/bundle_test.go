package explain_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// canary is in all that users, models, tools and programs give to a thread.
const canary = "canary-7f3a"

// sick is a flow in which everything has the canary, and that fails.
func sick(ctx context.Context, in map[string]string) (string, error) {
	st, fact := perdure.NewState[string](canary+"-state"), perdure.NewFact[string](canary+"-fact")
	if _, err := perdure.Step(ctx, "write "+canary, func(ctx context.Context) (string, error) {
		return canary, errors.Join(st.Set(ctx, canary), fact.Set(ctx, canary), perdure.Spend(ctx, canary, 3))
	}); err != nil {
		return "", err
	}
	if err := perdure.Emit(ctx, canary, map[string]string{canary: canary}); err != nil {
		return "", err
	}
	if _, err := perdure.Ask[string](ctx, "ask "+canary, perdure.Question{Kind: canary, Prompt: canary, Data: canary, Who: []string{canary}}); err != nil {
		return "", err
	}
	if _, err := perdure.Receive[string](ctx, "receive "+canary, canary, time.Hour); err != nil {
		return "", err
	}
	child, err := perdure.Spawn(ctx, "spawn "+canary, "child-"+canary, canary)
	if err != nil {
		return "", err
	}
	if _, err := perdure.Join[string](ctx, "join "+canary, child); err == nil {
		return "", errors.New("the child has not failed")
	}
	_, _ = perdure.Step(ctx, "large", func(context.Context) (string, error) { return strings.Repeat(canary, 60_000), nil })
	if _, err := perdure.Step(ctx, "error", func(context.Context) (string, error) {
		return "", perdure.Coded(canary, errors.New(canary))
	}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Minute})); err == nil {
		return "", errors.New("it did not fail")
	}
	return perdure.Step(ctx, "panic", func(context.Context) (string, error) { panic(canary + in["k"]) })
}

// bundleOf returns the files of a bundle, and its bytes.
func bundleOf(t *testing.T, rt *perdure.Runtime, o perdure.BundleOptions) (map[string]string, []byte) {
	t.Helper()
	var b bytes.Buffer
	kit.NoErr(t, rt.Bundle(t.Context(), canary, "", &b, o))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	kit.NoErr(t, err)
	files := map[string]string{}
	for _, f := range z.File {
		rd, err := f.Open()
		kit.NoErr(t, err)
		data, err := io.ReadAll(rd)
		kit.NoErr(t, err)
		files[f.Name] = string(data)
	}
	return files, b.Bytes()
}

// TestBundleHasNoContents looks for the canary in a bundle about a thread that has it
// in every field.
func TestBundleHasNoContents(t *testing.T) {
	kit.Bubble(t, "canary", func(t *testing.T) {
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil)).With(canary, canary)
		k := kit.New(t, nil, perdure.Options{Logger: log, Version: "v7"}, perdure.NewFlow(canary, sick),
			perdure.NewFlow("child-"+canary, func(context.Context, string) (string, error) { return "", errors.New(canary) }),
			perdure.NewFlow("retries", func(ctx context.Context, _ string) (string, error) {
				return perdure.Step(ctx, "s", func(context.Context) (string, error) { return "", errors.New("theirs") }, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Minute}))
			}))
		k.MustStart(perdure.StartRequest{Thread: canary, Flow: canary, Input: map[string]string{canary: canary}, Title: canary, User: canary, By: canary, Key: canary, Trace: canary,
			Metadata: map[string]string{canary: canary}, Budget: map[string]int64{canary: 100}})
		run := k.WaitFor(canary, perdure.Suspended)
		kit.NoErr(t, k.Progress(t.Context(), run.Asks[0].ID, canary, perdure.Note{By: canary, Reason: canary}))
		k.AnswerAt(run, "/ask "+canary, perdure.Answer{Value: canary, By: canary, Message: canary})
		k.WaitFor(canary, perdure.Suspended)
		kit.NoErr(t, k.Signal(t.Context(), canary, canary, canary, perdure.SignalOptions{By: canary, Key: canary}))
		k.WaitFor(canary, perdure.Failed)
		kit.NoErr(t, k.Retry(t.Context(), canary, "", perdure.Note{By: canary, Reason: canary}))
		k.WaitFor(canary, perdure.Failed)
		other := k.Tenant("other") // with a thread of the same id
		theirs, err := other.Start(t.Context(), perdure.StartRequest{Thread: canary, Flow: "retries"})
		kit.NoErr(t, err)
		_, _ = other.Wait(t.Context(), canary, theirs.ID)
		title := canary
		kit.NoErr(t, k.SetMetadata(t.Context(), canary, &title, map[string]string{canary: canary}, perdure.Note{By: canary, Reason: canary}))
		if !strings.Contains(logged.String(), canary) {
			t.Error("nothing about the thread was logged")
		}

		files, raw := bundleOf(t, k.Runtime, perdure.BundleOptions{})
		host := ""
		workers, err := k.Workers(t.Context())
		kit.NoErr(t, err)
		if len(workers) == 1 {
			host = workers[0].Host
		}
		for name, text := range files {
			if at := strings.Index(text, canary); at >= 0 {
				t.Errorf("%s has the canary: …%s", name, text[max(0, at-200):at+20])
			}
			if host == "" || strings.Contains(text, strconv.Quote(host)) {
				t.Errorf("%s has the name of the machine", name)
			}
		}
		if bytes.Contains(raw, []byte(canary)) {
			t.Error("the bytes of the file have the canary")
		}
		var lines int
		for range strings.Lines(files["journal.jsonl"]) {
			lines++
		}
		th, err := k.Get(t.Context(), canary)
		if err != nil || uint64(lines) != th.Seq {
			t.Errorf("the bundle has %d entries, and the thread %d", lines, th.Seq)
		}
		var m perdure.PostMortem
		kit.NoErr(t, json.Unmarshal([]byte(files["postmortem.json"]), &m))
		if m.Status != perdure.Failed || m.Codes[0] != "panic" || !strings.Contains(m.Stack, "explain_test.sick") || !strings.Contains(m.Stack, "bundle_test.go:") || strings.Contains(m.Stack, "/bundle_test") || len(m.Failures) < 6 {
			t.Errorf("the post-mortem says %+v", m)
		}
		for _, want := range []string{`"durability": "none"`, `"*memstore.Store"`, `"version": "v7"`, `"concurrency": 1000`} {
			if !strings.Contains(files["environment.json"], want) {
				t.Errorf("the environment lacks %s:\n%s", want, files["environment.json"])
			}
		}
		if !strings.Contains(logged.String(), theirs.ID) || strings.Contains(files["log.jsonl"], theirs.ID) {
			t.Errorf("the log is about another tenant's thread, or that one was not logged: %s", files["log.jsonl"])
		}
		if !strings.Contains(files["log.jsonl"], `["run","`+run.ID+`"],["path","/n`) || !strings.Contains(files["README.txt"], "no contents") {
			t.Errorf("the log is %s", files["log.jsonl"])
		}

		named, _ := bundleOf(t, k.Runtime, perdure.BundleOptions{Names: true, Hosts: true})
		if !strings.Contains(named["journal.jsonl"], `"path":"/write `+canary+`"`) || strings.Contains(named["postmortem.json"], `"thread": "`+canary) || !strings.Contains(named["workers.json"], strconv.Quote(host)) {
			t.Error("names are missing, or more than names is there")
		}
		whole, _ := bundleOf(t, k.Runtime, perdure.BundleOptions{Contents: true})
		if v, err := perdure.VerifyExport(strings.NewReader(whole["export.jsonl"])); err != nil || !v.OK() || !strings.Contains(whole["README.txt"], "HAS CONTENTS") || !strings.Contains(whole["postmortem.json"], canary) || !strings.Contains(whole["log.jsonl"], `["error","`+canary) {
			t.Errorf("the export in it: %+v, %v", v, err)
		}
	})
}
