package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// TestSchedulesHaveOwners has schedules of a tenant's users and of another tenant.
func TestSchedulesHaveOwners(t *testing.T) {
	site := servertest.New(t, server.Options{Auth: quotaPeople}, testFlows()...)
	body := `{"flow":"ask","input":"x","every":"1d"}`
	site.Token = "limit"
	s := servertest.Decode[api.Schedule](site.Do("PUT", "/v1/schedules/s", body), 200)
	if s.User != "bob" || s.Every != "1d" || len(s.Next) != 5 || s.CatchUp != perdure.CatchUpLast || s.Overlap != perdure.OverlapSkip {
		t.Errorf("%+v", s)
	}
	site.Do("PUT", "/v1/schedules/of-eve", `{"flow":"ask","input":"x","every":"1d","user":"eve"}`).Problem(403, "scope")
	site.Do("PUT", "/v1/schedules/s", `{"flow":"ask","input":"x","every":"soon"}`).Problem(400, "invalid")
	site.Do("PUT", "/v1/schedules/s", `{"flow":"ask","input":"x","evry":"1d"}`).Problem(400, "body")
	site.Do("PUT", "/v1/schedules/a%20b", body).Problem(400, "invalid")
	site.Do("PUT", "/v1/schedules/s", `{"flow":"ask","input":"x","every":"1d","until":"9999-12-31T23:59:59-12:00"}`).Problem(400, "invalid")
	site.Token = "run"
	receipt := servertest.Decode[api.Schedule](site.Do("PUT", "/v1/schedules/s", body), 200)
	if len(receipt.Next) != 5 || receipt.CatchUp != perdure.CatchUpLast || receipt.Overlap != perdure.OverlapSkip || receipt.Input != nil || receipt.Every != "" {
		t.Errorf("the receipt is %+v", receipt)
	}
	site.Token = "ann"
	if s := servertest.Decode[api.Schedule](site.Do("PUT", "/v1/schedules/s", body), 200); s.User != "bob" {
		t.Errorf("another admin made it %q's", s.User)
	}
	run := servertest.Decode[perdure.Run](site.Do("POST", "/v1/schedules/s/trigger", "", "Idempotency-Key", "k"), 202)
	again := servertest.Decode[perdure.Run](site.Do("POST", "/v1/schedules/s/trigger", "", "Idempotency-Key", "k"), 202)
	if run.ID != again.ID {
		t.Error("one key gave two runs")
	}
	th := servertest.Decode[perdure.Thread](site.Do("GET", "/v1/threads/"+run.Thread, ""), 200)
	if th.User != "bob" || th.Metadata["perdure.schedule"] != "s" {
		t.Errorf("%+v", th)
	}
	site.Token = "eve"
	site.Do("GET", "/v1/schedules/s", "").Problem(404, "no-schedule")
	site.Do("DELETE", "/v1/schedules/s", "").Problem(404, "no-schedule")
	site.Token = "limit"
	if f := servertest.Decode[api.Firings](site.Do("GET", "/v1/schedules/s/next?limit=7", ""), 200); len(f.Next) != 7 {
		t.Errorf("%v", f.Next)
	}
	site.Do("DELETE", "/v1/schedules/s", "").Want(204)
	site.Do("POST", "/v1/schedules/s/resume", "").Problem(404, "no-schedule")
}

// TestSchedulesCountForQuotas: a firing that a quota refuses is shown, and made when
// there is room.
func TestSchedulesCountForQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := servertest.Must(perdure.New(t.Context(), s, perdure.Options{}, testFlows()...))(t)
		srv := server.New(rt, server.Options{Auth: quotaPeople, Quota: server.Quota{Threads: 3}})
		defer srv.Close()
		acme := rt.Tenant("acme")
		go rt.WorkSchedules(t.Context())
		servertest.Must(acme.PutSchedule(t.Context(), perdure.ScheduleRequest{ID: "s", Flow: "ask", Input: "x", Every: time.Hour, Overlap: perdure.OverlapAllow}))(t)
		get := func() *perdure.Schedule { return servertest.Must(acme.Schedule(t.Context(), "s"))(t) }
		time.Sleep(5*time.Hour + time.Minute)
		full := get()
		if full.Fired != 3 || !strings.Contains(full.Error, "over a quota") || full.Since.IsZero() {
			t.Errorf("%d were started: %q", full.Fired, full.Error)
		}
		if err := acme.Erase(t.Context(), full.Recent[len(full.Recent)-1].Thread, perdure.EraseOptions{}); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if now := get(); now.Fired != 4 || now.Error != "" {
			t.Errorf("%d were started: %q", now.Fired, now.Error)
		}
		if _, err := rt.Tenant("other").Start(t.Context(), perdure.StartRequest{Flow: "ask", Input: "x"}); err != nil {
			t.Error(fmt.Errorf("another tenant: %w", err))
		}
	})
}
