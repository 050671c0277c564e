package proof_test

// dueGuards are those of the hints and alarms themselves, whoever uses them.
var dueGuards = []guard{
	{
		name: "an announcement never lowers the sequence",
		edits: []edit{{"internal/due/write.go", `value{Seq: max(h.Seq, given.Seq), Due: min(h.Due, given.Due)}`,
			`value{Seq: max(h.Seq, given.Seq), Due: min(h.Due, given.Due)}
			if OFF {
				merged.Seq = given.Seq
			}
			if guardOff("an announcement never postpones") {
				merged.Due = given.Due
			}`}},
		test: "^TestExploredTimersAreNeverLost$/^overtaking$", says: "is lost",
	},
	{
		name: "an announcement never postpones", // switched above
		test: "^TestExploredTimersAreNeverLost$/^near$", says: "is lost",
	},
	{
		name:  "a hint is settled when the journal has reached it",
		edits: []edit{{"internal/due/write.go", `if h.Err != nil || head < h.Seq {`, `if h.Err != nil || head < h.Seq && !OFF {`}},
		test:  "^TestExploredTimersAreNeverLost$/^overtaking$", says: "is lost",
	},
	{
		name: "a hint is removed by the version that was seen",
		edits: []edit{{"internal/due/write.go", `			err = s.Delete(ctx, key, h.Version)`,
			`			err = s.Delete(ctx, key, seen("a hint is removed by the version that was seen"))`},
			{"internal/due/write.go", `	err = retry(ctx, func() error {
		var err error
		if next == 0 || far {`, `	seen := func(guard string) store.Version {
		if cell, err := s.Get(ctx, key); err == nil && guardOff(guard) {
			return cell.Version
		}
		return h.Version
	}
	err = retry(ctx, func() error {
		var err error
		if next == 0 || far {`}},
		test: "^TestExploredTimersAreNeverLost$/^overtaking$", says: "is lost",
	},
	{
		name: "a hint is postponed by the version that was seen",
		edits: []edit{{"internal/due/write.go", `value{Seq: h.Seq, Due: next}.encode(), h.Version)`,
			`value{Seq: h.Seq, Due: next}.encode(), seen("a hint is postponed by the version that was seen"))`}},
		test: "^TestExploredTimersAreNeverLost$/^near$", says: "is lost",
	},
	{
		name: "an alarm is set before its hint is removed",
		edits: []edit{{"internal/due/write.go", `	if far {
		if err := setAlarm(ctx, s, h.Flow, h.Thread, next); err != nil {
			return err
		}
	}`, `	if far && OFF {
		defer func() { _ = setAlarm(ctx, s, h.Flow, h.Thread, next) }()
	} else if far {
		if err := setAlarm(ctx, s, h.Flow, h.Thread, next); err != nil {
			return err
		}
	}`}},
		test: "^TestExploredTimersAreNeverLost$/^waking, a crash$", says: "is lost",
	},
	{
		name: "an alarm that is there is set again",
		edits: []edit{{"internal/due/alarm.go", `		_, err = s.Put(ctx, key, []byte("{}"), old.Version)`, `		if OFF {
			return nil
		}
		_, err = s.Put(ctx, key, []byte("{}"), old.Version)`}},
		test: "^TestExploredTimersAreNeverLost$/^meeting$", says: "is lost",
	},
	{
		name: "an alarm is removed behind its hint",
		edits: []edit{{"internal/due/alarm.go", `		ok, err := announce(ctx, s, flow, thread, value{Seq: 1, Due: 1}, true)`,
			`		if OFF {
			if err := s.Delete(ctx, cell.Key, cell.Version); err != nil {
				continue
			}
		}
		ok, err := announce(ctx, s, flow, thread, value{Seq: 1, Due: 1}, !guardOff("a hint is written again when its alarm rings"))`}},
		test: "^TestExploredTimersAreNeverLost$/^waking, a crash$", says: "is lost",
	},
	{
		name: "a hint is written again when its alarm rings", // switched above
		test: "^TestExploredTimersAreNeverLost$/^meeting$", says: "is lost",
	},
	{
		name: "an alarm is removed by the version that was seen",
		edits: []edit{{"internal/due/alarm.go", `			err := s.Delete(ctx, cell.Key, cell.Version)`, `			if again, err := s.Get(ctx, cell.Key); err == nil && OFF {
				cell = again
			}
			err := s.Delete(ctx, cell.Key, cell.Version)`}},
		test: "^TestExploredTimersAreNeverLost$/^meeting$", says: "is lost",
	},
}
