// Package otel traces runs with OpenTelemetry: one trace for each run, however many
// processes execute it, however long it waits, and whoever takes it over. It may
// import package perdure and what that imports, and OpenTelemetry.
//
//	t := otel.New(otel.Options{Provider: []trace.TracerProviderOption{trace.WithBatcher(exporter)}})
//	defer t.Shutdown(ctx)
//	rt, err := perdure.New(ctx, store, perdure.Options{Observer: t, Logger: slog.New(t.LogHandler(handler))}, flows...)
//	http.Handle("/", t.Handler(server.New(rt, server.Options{})))
//
// Package otel/otlp makes one that sends everything to a collector, which is also what
// the flag --otlp of dev, serve and worker does.
//
// # Spans
//
// A run is a span named "invoke_workflow FLOW", which is sent when the run ends. Below
// it, each pass is a span named "pass": one execution of the run's code by a worker,
// until the run waits or ends. Below a pass, each attempt of a step is a span named
// "step NAME"; those of agents are named "invoke_agent NAME", "chat MODEL" and
// "execute_tool TOOL", with the attributes of OpenTelemetry's conventions for
// generative AI. gen_ai.conversation.id is the thread. Steps whose outcome is on record
// are not executed again and have no second span; an agent that waits for a person in
// the middle of its work has a span in each pass.
//
// The trace of a run follows from its record: it continues the one in which the run was
// started, if there was one, and otherwise its id is made from that of the run. So is
// the id of each pass. That is how a pass that takes over from a worker that died can
// link to the pass that was lost, and report it: nobody else will. The lost pass has the
// attribute perdure.pass.lost, lasts until it was taken over, and is an error. Steps that
// were under way are not made up: they are in the trace again, with the spans of the
// pass that executes them again.
//
// A run that a flow spawns on a thread of its own continues the trace of its parent.
//
// # What a trace reveals
//
// By default, spans have names, numbers and the messages of errors. [Options.Content]
// adds what was said: prompts, replies, and the arguments and results of tools. What a
// tool reports is without the secrets that it was given.
package otel
