package perdure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/cron"
	"github.com/perdure/perdure/store/memstore"
)

// A schedule starts a flow at given times, once each, whichever workers there are. In the
// night in which clocks go forward, 02:30 does not exist: that firing is made at 03:00.
func ExampleRuntime_PutSchedule() {
	ctx := context.Background()
	digest := perdure.NewFlow("digest", func(ctx context.Context, topic string) (string, error) {
		return "news about " + topic, nil
	})
	node := startNode(memstore.New(), digest)
	defer node.stop()

	s, err := node.PutSchedule(ctx, perdure.ScheduleRequest{ID: "nightly", Flow: "digest", Input: "bees",
		Cron: "30 2 * * *", Zone: "Europe/Berlin", Start: time.Date(2040, 3, 24, 0, 0, 0, 0, time.UTC)})
	noErr(err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	noErr(err)
	for _, at := range s.Next[:3] {
		fmt.Println(at.In(berlin).Format(time.DateTime))
	}

	run, err := node.TriggerSchedule(ctx, "nightly", "") // now
	noErr(err)
	fmt.Println(string(node.wait(run).Output))
	s, err = node.Schedule(ctx, "nightly")
	noErr(err)
	fmt.Println(s.Recent[0].Outcome, s.Recent[0].Manual, s.Recent[0].Thread == run.Thread)
	// Output:
	// 2040-03-24 02:30:00
	// 2040-03-25 03:00:00
	// 2040-03-26 02:30:00
	// "news about bees"
	// started true true
}
