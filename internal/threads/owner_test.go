package threads_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
)

// firstErr returns the first error of a sequence.
func firstErr[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}

// TestUserReachesOnlyItsOwn calls each method of a runtime that is limited to one
// user with the thread, ask and child of another. New methods must be listed here.
func TestUserReachesOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			child, err := perdure.Spawn(ctx, "child", "asker", "")
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", child)
		})
		asker := perdure.NewFlow("asker", func(ctx context.Context, _ string) (string, error) {
			return perdure.Ask[string](ctx, "q", perdure.Question{Prompt: "?"})
		})
		place, err := archive.Dir(t.TempDir())
		kit.NoErr(t, err)
		k := kit.New(t, nil, perdure.Options{Archive: place}, parent, asker)
		ann, eve := k.User("ann"), k.User("eve")
		ctx := t.Context()
		if _, err := ann.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "parent", Input: ""}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		run, err := ann.GetRun(ctx, "t", "")
		if err != nil || len(run.Children) != 1 {
			t.Fatalf("%+v, %v", run, err)
		}
		child := run.Children[0].Thread
		asked, err := ann.GetRun(ctx, child, "")
		if err != nil || len(asked.Asks) != 1 {
			t.Fatalf("the owner does not reach the child of its thread: %+v, %v", asked, err)
		}
		ask := asked.Asks[0].ID
		var file bytes.Buffer
		kit.NoErr(t, ann.Export(ctx, "t", &file, perdure.ExportOptions{}))
		note := perdure.Note{}
		here := func(call func(thread string) error) map[string]error {
			return map[string]error{"its thread": call("t"), "its child": call(child)}
		}
		calls := map[string]map[string]error{
			"Archive": here(func(id string) error { _, err := eve.Archive(ctx, id, note); return err }),
			"Bundle":  here(func(id string) error { return eve.Bundle(ctx, id, "", io.Discard, perdure.BundleOptions{}) }),
			"Cancel":  here(func(id string) error { return eve.Cancel(ctx, id, "", note) }),
			"Deltas":  here(func(id string) error { return firstErr(eve.Deltas(ctx, id)) }),
			"Diff": here(func(id string) error {
				_, err := eve.Diff(ctx, perdure.Point{Thread: id, Seq: 1}, perdure.Point{Thread: id, Seq: 2})
				return err
			}),
			"Erase":  here(func(id string) error { return eve.Erase(ctx, id, perdure.EraseOptions{}) }),
			"Events": here(func(id string) error { return firstErr(eve.Events(ctx, id, perdure.EventOptions{})) }),
			"Export": here(func(id string) error { return eve.Export(ctx, id, io.Discard, perdure.ExportOptions{}) }),
			"Fork": here(func(id string) error {
				_, err := eve.Fork(ctx, perdure.ForkRequest{Thread: id})
				return err
			}),
			"Get":        here(func(id string) error { _, err := eve.Get(ctx, id); return err }),
			"GetPage":    here(func(id string) error { _, err := eve.GetPage(ctx, id, perdure.RunPage{Limit: 1}); return err }),
			"GetRun":     here(func(id string) error { _, err := eve.GetRun(ctx, id, ""); return err }),
			"Life":       here(func(id string) error { _, err := eve.Life(ctx, id); return err }),
			"Pause":      here(func(id string) error { return eve.Pause(ctx, id, "", note) }),
			"PostMortem": here(func(id string) error { _, err := eve.PostMortem(ctx, id, ""); return err }),
			"Restore":    here(func(id string) error { return eve.Restore(ctx, id, perdure.RestoreOptions{}) }),
			"Resume":     here(func(id string) error { return eve.Resume(ctx, id, "", note) }),
			"Retry":      here(func(id string) error { return eve.Retry(ctx, id, "", note) }),
			"Rewind":     here(func(id string) error { _, err := eve.Rewind(ctx, id, 1, note); return err }),
			"SetMetadata": here(func(id string) error {
				return eve.SetMetadata(ctx, id, nil, map[string]string{"a": "b"}, note)
			}),
			"MarkSeen":   here(func(id string) error { return eve.MarkSeen(ctx, id, note) }),
			"Signal":     here(func(id string) error { return eve.Signal(ctx, id, "s", "", perdure.SignalOptions{}) }),
			"StartAgain": here(func(id string) error { _, err := eve.StartAgain(ctx, id, "", note); return err }),
			"StateAt":    here(func(id string) error { _, err := eve.StateAt(ctx, id, 1); return err }),
			"Tag":        here(func(id string) error { _, err := eve.Tag(ctx, id); return err }),
			"Family":     here(func(id string) error { _, err := eve.Family(ctx, id); return err }),
			"Verify":     here(func(id string) error { _, err := eve.Verify(ctx, id); return err }),
			"Wait":       here(func(id string) error { _, err := eve.Wait(ctx, id, ""); return err }),
			"WaitEnd":    here(func(id string) error { _, err := eve.WaitEnd(ctx, id, ""); return err }),
		}
		for method, errs := range calls {
			for whose, err := range errs {
				if !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("%s of %s = %v", method, whose, err)
				}
			}
		}
		_, err = eve.GetAsk(ctx, ask)
		kit.WantErr(t, "GetAsk", err, perdure.ErrNoAsk)
		kit.WantErr(t, "Answer", eve.Answer(ctx, perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: "x"}}), perdure.ErrNoAsk)
		kit.WantErr(t, "Progress", eve.Progress(ctx, ask, 1, note), perdure.ErrNoAsk)
		_, err = eve.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "asker", Input: ""})
		kit.WantErr(t, "Start", err, perdure.ErrExists)
		_, err = eve.Start(ctx, perdure.StartRequest{Thread: "new", Flow: "asker", Input: "", User: "ann"})
		kit.WantErr(t, "Start for another", err, perdure.ErrInvalid)
		_, err = eve.Create(ctx, perdure.CreateRequest{Thread: "t"})
		kit.WantErr(t, "Create", err, perdure.ErrExists)
		for s, err := range eve.List(ctx, perdure.ListOptions{}) {
			t.Errorf("List = %+v, %v", s, err)
		}
		if counts, err := eve.Count(ctx); err != nil || counts.Threads != 0 || counts.Asks != 0 {
			t.Errorf("Count = %+v, %v", counts, err)
		}
		for a, err := range eve.Archived(ctx, perdure.ArchivedOptions{}) {
			t.Errorf("Archived = %+v, %v", a, err)
		}
		for i, err := range eve.RetentionDue(ctx, perdure.RetentionOptions{}) {
			t.Errorf("RetentionDue = %+v, %v", i, err)
		}
		_, err = eve.Import(ctx, &file, perdure.ImportOptions{As: "copy"})
		kit.WantErr(t, "Import of another's thread", err, perdure.ErrInvalid)
		upload, err := ann.Upload(ctx, strings.NewReader("x"), perdure.UploadRequest{})
		kit.NoErr(t, err)
		kit.WantErr(t, "DropUpload", eve.DropUpload(ctx, upload.ID), perdure.ErrNoUpload)
		_, err = eve.Upload(ctx, strings.NewReader("x"), perdure.UploadRequest{User: "ann"})
		kit.WantErr(t, "Upload for another", err, perdure.ErrInvalid)
		plan, err := eve.PlanBulk(ctx, perdure.BulkRequest{Verb: perdure.BulkCancel, All: true})
		if err != nil || plan.Threads != 0 {
			t.Errorf("PlanBulk = %+v, %v", plan, err)
		}
		job, err := eve.StartBulk(ctx, perdure.BulkRequest{Verb: perdure.BulkCancel, All: true})
		kit.NoErr(t, err)
		for _, call := range []func(context.Context, string) (*perdure.Bulk, error){ann.Bulk, ann.StopBulk, ann.ResumeBulk} {
			_, err := call(ctx, job.ID)
			kit.WantErr(t, "a job of another", err, perdure.ErrNoBulk)
		}
		if jobs, err := ann.Bulks(ctx); err != nil || len(jobs) != 0 {
			t.Errorf("Bulks = %v, %v", jobs, err)
		}
		for name, call := range map[string]func() error{
			"EraseUser":    func() error { _, err := eve.EraseUser(ctx, "ann", perdure.EraseUserOptions{}); return err },
			"UserData":     func() error { _, err := eve.UserData(ctx, "ann"); return err },
			"UserReceipt":  func() error { _, err := eve.UserReceipt(ctx, "ann"); return err },
			"CheckReceipt": func() error { return eve.CheckReceipt(ctx, &perdure.Receipt{}, "ann") },
		} {
			if err := call(); err == nil {
				t.Errorf("%s of another user succeeds", name)
			}
		}
		_, err = ann.PutSchedule(ctx, perdure.ScheduleRequest{ID: "s", Flow: "asker", Input: "", Every: time.Hour})
		kit.NoErr(t, err)
		for name, call := range map[string]func() error{
			"DeleteSchedule":  func() error { return eve.DeleteSchedule(ctx, "s") },
			"NextFirings":     func() error { _, err := eve.NextFirings(ctx, "s", 1); return err },
			"PauseSchedule":   func() error { _, err := eve.PauseSchedule(ctx, "s"); return err },
			"ResumeSchedule":  func() error { _, err := eve.ResumeSchedule(ctx, "s"); return err },
			"Schedule":        func() error { _, err := eve.Schedule(ctx, "s"); return err },
			"TriggerSchedule": func() error { _, err := eve.TriggerSchedule(ctx, "s", ""); return err },
		} {
			kit.WantErr(t, name+" of another", call(), perdure.ErrNoSchedule)
		}
		_, err = eve.PutSchedule(ctx, perdure.ScheduleRequest{ID: "s", Flow: "asker", Input: "", Every: time.Minute})
		if err == nil {
			t.Error("PutSchedule replaces another's")
		}
		if all, err := eve.Schedules(ctx); err != nil || len(all) != 0 {
			t.Errorf("Schedules = %v, %v", all, err)
		}
		theirs := map[string]bool{ // of the process or the tenant, not of a thread
			"Close": true, "ExportKey": true, "Flow": true, "Flows": true, "Rebuild": true, "Retention": true, "Tenant": true, "User": true,
			"Watch": true, "Work": true, "WorkBulk": true, "WorkSchedules": true, "Workers": true,
		}
		for _, name := range []string{"Answer", "Archived", "Bulk", "Bulks", "DropUpload", "Upload", "PlanBulk", "ResumeBulk", "StartBulk", "StopBulk", "CheckReceipt", "Count", "Create", "EraseUser", "UserData", "UserReceipt", "GetAsk", "Import", "List", "Progress", "RetentionDue", "Start",
			"DeleteSchedule", "NextFirings", "PauseSchedule", "PutSchedule", "ResumeSchedule", "Schedule", "Schedules", "TriggerSchedule"} {
			theirs[name] = true // called above
		}
		for m := range reflect.TypeFor[*perdure.Runtime]().Methods() {
			if _, called := calls[m.Name]; !called && !theirs[m.Name] {
				t.Errorf("%s is not listed in this test", m.Name)
			}
		}
		kit.NoErr(t, ann.Answer(ctx, perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: "yes"}}))
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "yes")
	})
}
