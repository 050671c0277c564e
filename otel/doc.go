// Package otel traces runs with OpenTelemetry: one trace for each run, however many
// processes execute it, however long it waits, and whichever worker takes it over. It may
// import package perdure and what that imports, and OpenTelemetry.
//
//	t := otel.New(otel.Options{Provider: []trace.TracerProviderOption{trace.WithBatcher(exporter)}})
//	defer t.Shutdown(ctx)
//	rt, err := perdure.New(ctx, store, perdure.Options{Observer: t, Logger: slog.New(t.LogHandler(handler))}, flows...)
//	http.Handle("/", t.Handler(server.New(rt, server.Options{})))
//
// Package otel/otlp makes telemetry that sends everything to a collector, as the flag
// --otlp of dev, serve and worker does.
//
// # Spans
//
// A run is a span named "invoke_workflow FLOW", which is sent when the run ends. Below
// it, each pass is a span named "pass": one execution of the run's code by a worker,
// until the run waits or ends. Below a pass, each attempt of a step is a span named
// "step NAME"; those of agents are named "invoke_agent NAME", "chat MODEL" and
// "execute_tool TOOL", with the attributes of OpenTelemetry's conventions for
// generative AI. gen_ai.conversation.id is the thread. Steps with a recorded outcome are
// not executed again and have no second span; an agent that waits for a person in the
// middle of its work has a span in each pass.
//
// The trace of a run is derived from its record: it continues the trace in which the run
// was started, if there was one; otherwise its id is made from the run's id. The id of
// each pass is made in the same way. So a pass that takes over from a dead worker can
// link to the lost pass, and report it, which the dead worker cannot do. The lost pass has
// the attribute perdure.pass.lost, lasts until it was taken over, and is an error. The
// steps that it had begun have no spans in it: they appear in the pass that executes them
// again.
//
// A run that a flow spawns on a thread of its own continues the trace of its parent.
//
// # What a trace reveals
//
// By default, spans have names, numbers and the messages of errors. [Options.Content]
// adds the conversation: prompts, replies, and the arguments and results of tools. Secrets
// that a tool was given are removed from what it reports.
package otel
