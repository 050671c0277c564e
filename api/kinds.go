package api

// EventKind describes a kind of event, for docs/events.md.
type EventKind struct {
	Name     string
	Title    string   // what happened
	Fields   []string // members of its data that it may have, besides those that all have
	Internal bool     // about how runs are worked on: its own members are only shown to admins
}

// CommonFields are the members that an event of any kind may have.
var CommonFields = []string{"thread", "seq", "life", "kind", "time", "run", "path"}

// EventKinds are the kinds of events in the journal of a thread. Later versions
// may add some.
var EventKinds = []EventKind{
	{"created", "the thread was made", []string{"by"}, false},
	{"metadata", "its title or metadata changed", []string{"by", "reason"}, false},
	{"signal", "a named event arrived from outside, or a child ended", []string{"name", "child", "value", "status", "error", "by"}, false},
	{"forked", "the thread begins as a fork of the thread from, behind its sequence at, or was imported; value is an input that was edited; answers that nothing has come of yet are void, but for those in keep", []string{"from", "at", "import", "signer", "keep", "value", "by", "reason"}, false},
	{"rewound", "the thread is again as it was at the sequence to", []string{"to", "by", "reason"}, false},
	{"nudge", "nothing", nil, true},

	{"queued", "a run was asked for: value is the input, name the flow", []string{"name", "value", "by"}, false},
	{"claimed", "a worker began to work on the run", []string{"worker"}, true},
	{"suspended", "the run waits; error says which of its branches have failed meanwhile", []string{"error"}, false},
	{"released", "the worker let go of the run", nil, true},
	{"blocked", "the code does not fit what is recorded: diff says how", []string{"diff"}, false},
	{"quarantined", "the run killed too many workers: value is the post-mortem", []string{"error", "value"}, false},
	{"ended", "the run is over: status says how, value is the output", []string{"status", "value", "value_of", "error"}, false},

	{"step", "a step is done: value is its result, or error why it failed", []string{"value", "value_of", "error", "took_us"}, false},
	{"attempt", "an attempt of a step failed, and it is tried again when due", []string{"attempt", "attempts", "error", "due", "took_us"}, false},
	{"closed", "a branch of a group that fails fast failed, and those beside it are closed, with their asks", []string{"error"}, false},
	{"intent", "a step that must not run twice is about to start", []string{"due"}, true},

	{"asked", "a question to a person is open: name is the prompt, value what it is about", []string{"ask", "name", "ask_kind", "decisions", "value", "due"}, false},
	{"answered", "an ask was answered", []string{"ask", "decision", "value", "by", "reason"}, false},
	{"expired", "an ask's time is over", []string{"ask", "decision", "value", "by", "reason"}, false},
	{"progress", "there is news on an open ask", []string{"ask", "value", "by", "reason"}, false},
	{"timer", "a sleep began", []string{"due"}, false},
	{"waiting", "the run waits for a signal or a child", []string{"name", "child", "due"}, false},
	{"received", "a signal that was there was taken", []string{"name", "child", "value", "status", "error"}, false},
	{"fired", "a time is over", []string{"name", "error"}, false},
	{"took", "a queued input was taken, or there was none", []string{"name", "value"}, false},
	{"emitted", "an event of the flow's own", []string{"value"}, false},
	{"planned", "the names of the steps that will come", []string{"plan"}, false},
	{"spawned", "a child is about to be started", []string{"name", "child", "value"}, false},

	{"cancel", "the run is to be cancelled", []string{"name", "by", "reason"}, false},
	{"paused", "the run was paused", []string{"by", "reason"}, false},
	{"resumed", "the pause was lifted", []string{"by", "reason"}, false},
	{"retried", "the run goes on behind its failure", []string{"by", "reason"}, false},

	{"dumped", "dependencies were saved inside a step", nil, true},
	{"problem", "something went wrong that stops nothing", []string{"name", "error"}, true},
}

var internalKinds, knownKinds = func() (map[string]bool, map[string]bool) {
	internal, known := map[string]bool{}, map[string]bool{}
	for _, k := range EventKinds {
		known[k.Name] = true
		if k.Internal {
			internal[k.Name] = true
		}
	}
	return internal, known
}()

// Internal reports whether events of a kind show their own members to admins
// only. A kind that this version does not know is one of them.
func Internal(kind string) bool { return internalKinds[kind] || !knownKinds[kind] }
