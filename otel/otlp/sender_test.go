package otlp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

type exporter struct {
	sdkmetric.Exporter
	export func() error
}

func (e exporter) Export(context.Context, *metricdata.ResourceMetrics) error { return e.export() }

// Only a collector that takes nothing is warned of, not the end of the process, nor a
// collection that has used up the time.
func TestTheEndIsNoOutage(t *testing.T) {
	live, cancel := context.WithCancel(t.Context())
	late, over := context.WithTimeout(t.Context(), 0)
	defer over()
	for _, test := range []struct {
		name   string
		ctx    context.Context
		export func() error
		warns  int
	}{
		{"nobody takes it", t.Context(), func() error { return errors.New("refused") }, 1},
		{"it took too long before", late, late.Err, 0},
		{"it stops meanwhile", live, func() error { cancel(); return live.Err() }, 0},
		{"it has stopped", live, live.Err, 0},
	} {
		var said bytes.Buffer
		s := metricSender{exporter{export: test.export}, &outage{what: "METRICS", log: slog.New(slog.NewTextHandler(&said, nil))}}
		if err := s.Export(test.ctx, nil); err != nil || strings.Count(said.String(), "does not take") != test.warns {
			t.Errorf("%s: %v, %s", test.name, err, &said)
		}
	}
}
