package otel_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/otel"
	"github.com/perdure/perdure/store/memstore"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A run is a trace. Here the spans stay in memory; package otel/otlp sends them to a
// collector.
func ExampleNew() {
	spans := tracetest.NewInMemoryExporter()
	t := otel.New(otel.Options{Provider: []sdk.TracerProviderOption{sdk.WithSyncer(spans)}})

	flow := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		return perdure.Step(ctx, "write", func(context.Context) (string, error) { return "Hello, " + name, nil })
	})
	ctx, stop := context.WithCancel(context.Background())
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{Observer: t}, flow)
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error)
	go func() { worked <- rt.Work(ctx) }()
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "greet", Input: "Ann"})
	if err == nil {
		_, err = rt.WaitEnd(ctx, run.Thread, run.ID)
	}
	if err != nil {
		log.Fatal(err)
	}
	stop()
	<-worked
	var names []string
	for _, s := range spans.GetSpans() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	fmt.Println(names)
	// Output: [invoke_workflow greet pass step write]
}
