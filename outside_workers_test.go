package perdure_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

func TestWorkersTellOfThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		began := time.Now()
		one := newKit(t, s, perdure.Options{Version: "v1"}, echoFlow("b"), echoFlow("a"))
		synctest.Wait()
		one.start("t", "a", "")
		one.wait("t", perdure.Succeeded)
		id := ""
		for _, e := range one.events("t") {
			if e.Kind == "claimed" {
				id = e.Worker
			}
		}
		host, err := os.Hostname()
		if err != nil {
			host = ""
		}
		time.Sleep(time.Minute) // renewals
		got, err := one.Tenant("any").Workers(t.Context())
		want := []perdure.WorkerInfo{{ID: id, Host: host, PID: os.Getpid(), Version: "v1", Flows: []string{"a", "b"}, Started: began.UTC()}}
		if d := cmp.Diff(want, got); d != "" || err != nil || id == "" {
			t.Error(err, d)
		}
		raw, err := json.Marshal(got[0])
		if err != nil || !strings.HasPrefix(string(raw), fmt.Sprintf(`{"id":%q,`, id)) {
			t.Errorf("as JSON it is %s, %v", raw, err)
		}

		var flows []perdure.Flow
		for i := range 100 {
			flows = append(flows, echoFlow(fmt.Sprintf("%0100d", i)))
		}
		two := newKit(t, s, perdure.Options{}, flows...)
		synctest.Wait()
		if got, err = two.Workers(t.Context()); err != nil || len(got) != 2 {
			t.Errorf("there are %+v, %v", got, err)
		}
		for _, w := range got {
			if w.ID != id && len(w.Flows) != 40 {
				t.Errorf("%d flows are named", len(w.Flows))
			}
		}
		two.stop()
		if got, err = one.Workers(t.Context()); err != nil || len(got) != 1 || got[0].ID != id {
			t.Errorf("after one has gone there are %+v, %v", got, err)
		}
		// What an older version wrote, and what is none.
		for name, value := range map[string]string{"old": `{"n":1,"ttl":3000000,"host":"h","key":"k"}`, "odd": `{"n":1,"host":"h","info":[1]}`} {
			if _, err := s.Put(t.Context(), "worker/"+name, []byte(value), ""); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		got, err = one.Workers(t.Context())
		for _, w := range got {
			if w.ID == "old" || w.ID == "odd" {
				seen++
				if d := cmp.Diff(perdure.WorkerInfo{ID: w.ID, Host: "h"}, w); d != "" {
					t.Error(d)
				}
			}
		}
		if err != nil || seen != 2 {
			t.Errorf("there are %+v, %v", got, err)
		}
		time.Sleep(time.Hour) // the other one finds them dead
		if got, err = one.Workers(t.Context()); err != nil || len(got) != 1 {
			t.Errorf("long after there are %+v, %v", got, err)
		}
	})
}
