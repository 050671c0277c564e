package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// delivery sends spans in batches. OpenTelemetry's batcher drops spans without a word when
// its queue is full, and at once those that nobody is there to receive. So delivery counts
// the spans that wait and drops those beyond the bound itself, tries again while the
// collector cannot be reached, and reports each outage once.
type delivery struct {
	sdk.SpanProcessor // the batcher
	exporter          sdk.SpanExporter
	log               *slog.Logger
	most              int             // how many spans may wait
	ending            context.Context // done when Shutdown begins
	end               context.CancelFunc
	over              context.Context // done when Shutdown returns
	finish            context.CancelFunc

	mu      sync.Mutex
	waiting int  // spans that were neither delivered nor dropped
	lost    int  // spans that were dropped since the last delivery
	failed  bool // the outage is on record
}

func newDelivery(exporter sdk.SpanExporter, log *slog.Logger) *delivery {
	d := &delivery{exporter: exporter, log: log, most: sdk.DefaultMaxQueueSize}
	if n, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil && n > 0 {
		d.most = n
	}
	d.ending, d.end = context.WithCancel(context.Background())
	d.over, d.finish = context.WithCancel(context.Background())
	const flushes = 16 // calls of ForceFlush have a place in the queue, too
	d.SpanProcessor = sdk.NewBatchSpanProcessor(sender{d}, sdk.WithMaxQueueSize(d.most+flushes))
	return d
}

// OnEnd implements sdk.SpanProcessor.
func (d *delivery) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() || d.ending.Err() != nil {
		return
	}
	d.mu.Lock()
	full := d.waiting >= d.most
	if full {
		d.lost++
		d.report(fmt.Errorf("%d spans are waiting, and no more may", d.most))
	} else {
		d.waiting++
	}
	d.mu.Unlock()
	if !full {
		d.SpanProcessor.OnEnd(s)
	}
}

// report logs, once in an outage, that spans are not delivered. The caller holds d.mu.
func (d *delivery) report(err error) {
	if !d.failed {
		d.log.Warn("traces cannot be delivered; they wait in memory for a while and are then dropped; runs are not affected", "error", err)
	}
	d.failed = true
}

// Shutdown implements sdk.SpanProcessor.
func (d *delivery) Shutdown(ctx context.Context) error {
	d.end()
	err := d.SpanProcessor.Shutdown(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if lost := d.lost + d.waiting; lost > 0 && d.over.Err() == nil {
		d.log.Warn("the last traces could not be delivered", "lost", lost)
	}
	d.finish()
	return err
}

// sender is the exporter of the batcher of a delivery. It returns no errors: OpenTelemetry
// would write them to the standard error of the process.
type sender struct{ d *delivery }

// ExportSpans implements sdk.SpanExporter.
func (s sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	d := s.d
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.over, cancel)()
	err := d.send(ctx, spans)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over.Err() != nil {
		return nil // they were counted as lost
	}
	d.waiting -= len(spans)
	switch {
	case err != nil:
		d.lost += len(spans)
		d.report(err)
	case d.failed:
		d.log.Info("traces are delivered again", "lost", d.lost)
		d.failed, d.lost = false, 0
	}
	return nil
}

// send sends a batch. The exporter tries again if a collector says that it is too busy;
// send does if there is none.
func (d *delivery) send(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := d.exporter.ExportSpans(ctx, spans)
		var unreachable *url.Error
		if !errors.As(err, &unreachable) || ctx.Err() != nil || d.ending.Err() != nil {
			return err
		}
		d.mu.Lock()
		d.report(err)
		d.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-d.ending.Done(): // try a last time
		case <-ctx.Done():
			return err
		}
	}
}

// Shutdown implements sdk.SpanExporter.
func (s sender) Shutdown(ctx context.Context) error { return s.d.exporter.Shutdown(ctx) }
