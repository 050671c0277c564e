package otel_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/otel"
	"github.com/perdure/perdure/store/memstore"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// traced returns telemetry and what it has sent.
func traced(o otel.Options) (*otel.Telemetry, *tracetest.InMemoryExporter) {
	sent := tracetest.NewInMemoryExporter()
	o.Provider = append(o.Provider, sdk.WithSyncer(sent))
	return otel.New(o), sent
}

// outline returns the spans as a tree, those with one parent in the order of their
// start and their name (virtual time stands still while they work), and fails the test unless they are one trace in which every parent is there.
func outline(t *testing.T, spans tracetest.SpanStubs) string {
	t.Helper()
	below := map[trace.SpanID]tracetest.SpanStubs{}
	there := map[trace.SpanID]bool{}
	for _, s := range spans {
		if there[s.SpanContext.SpanID()] {
			t.Errorf("two spans have the id of %s", s.Name)
		}
		there[s.SpanContext.SpanID()] = true
	}
	for _, s := range spans {
		if s.SpanContext.TraceID() != spans[0].SpanContext.TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
		parent := s.Parent.SpanID()
		if !there[parent] {
			if parent.IsValid() && !s.Parent.IsRemote() {
				t.Errorf("the parent of %s is missing", s.Name)
			}
			parent = trace.SpanID{}
		}
		below[parent] = append(below[parent], s)
	}
	var b strings.Builder
	var write func(trace.SpanID, string)
	write = func(id trace.SpanID, indent string) {
		slices.SortStableFunc(below[id], func(a, b tracetest.SpanStub) int {
			return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(a.Name, b.Name))
		})
		for _, s := range below[id] {
			fmt.Fprintf(&b, "%s%s", indent, s.Name)
			for _, key := range []attribute.Key{"perdure.status", "perdure.outcome", "perdure.takeover", "perdure.pass.lost"} {
				if v, ok := valueOf(s, key); ok {
					fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(key), "perdure."), v)
				}
			}
			if s.Status.Code == codes.Error {
				b.WriteString(" ERROR")
			}
			b.WriteString("\n")
			write(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	write(trace.SpanID{}, "")
	return b.String()
}

func valueOf(s tracetest.SpanStub, key attribute.Key) (string, bool) {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String(), true
		}
	}
	return "", false
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the spans are\n%swant\n%s", got, want)
	}
}

const secretOrder = "A-17 for Ann"

func clerk() perdure.Flow {
	refund := agent.NewTool("refund", "pays money back", func(context.Context, struct{ Order string }) (string, error) {
		return "paid to Ann", nil
	}, agent.NeedsApproval())
	model := script.New(script.Call("refund", `{"Order":"`+secretOrder+`"}`), script.Say("Ann has her money."))
	return agent.NewFlow("triage", agent.New("clerk", model, agent.Options{Instruction: "Help Ann.", Tools: []agent.Tool{refund}}))
}

// An agent that waits for a person in the middle of a call is one trace, in which
// nothing that was replayed is twice, and in which nothing is that was said.
func TestOneTraceAcrossAWait(t *testing.T) {
	for _, content := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tel, sent := traced(otel.Options{Content: content, ContentLimit: 40})
			k := kit.New(t, nil, perdure.Options{Observer: tel}, clerk())
			k.StartOn("t", "triage", "A-17 came broken")
			run := k.WaitFor("t", perdure.Suspended)
			time.Sleep(24 * time.Hour)
			kit.NoErr(t, k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Decision: agent.DecisionApprove, By: "bob"}))
			k.WaitFor("t", perdure.Succeeded)
			k.Stop()
			spans := sent.GetSpans()
			want(t, outline(t, spans), `invoke_workflow triage status=succeeded
  pass status=suspended
    invoke_agent clerk outcome=suspended
      chat script
      step input
  pass status=succeeded
    invoke_agent clerk
      chat script
      execute_tool refund
`)
			said := 0
			for _, s := range spans {
				text := fmt.Sprint(s.Name, s.Attributes, s.Events, s.Status)
				if strings.Contains(text, "Ann") {
					said++
				}
				for _, a := range s.Attributes {
					if len(a.Value.String()) > 100 {
						t.Errorf("%s of %s is longer than the limit: %s", a.Key, s.Name, a.Value.String())
					}
				}
				switch s.Name {
				case "chat script":
					for _, key := range []attribute.Key{"gen_ai.provider.name", "gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"} {
						if _, ok := valueOf(s, key); !ok {
							t.Errorf("%s has no %s", s.Name, key)
						}
					}
					if s.SpanKind != trace.SpanKindClient {
						t.Errorf("%s is of kind %s", s.Name, s.SpanKind)
					}
					fallthrough
				case "execute_tool refund", "invoke_agent clerk":
					if id, _ := valueOf(s, "gen_ai.conversation.id"); id != "t" {
						t.Errorf("%s is about conversation %q", s.Name, id)
					}
				}
			}
			if content != (said > 0) {
				t.Errorf("%d spans have what was said, and Content is %t", said, content)
			}
		})
	}
}

// A worker that dies in a step leaves no span of it. The pass that takes over reports
// the one that was lost, and links to it.
func TestTakeoverIsLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{})
		lives := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			if _, err := perdure.Step(ctx, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return 0, err
			}
			return perdure.Step(ctx, "second", func(ctx context.Context) (int, error) {
				if lives++; lives == 1 {
					<-dead
				}
				return 2, nil
			})
		})
		s := memstore.New()
		first, sent := traced(otel.Options{})
		m := kit.NewMortal(t, s, perdure.Options{Observer: first, Lease: 3 * time.Second}, flow)
		run := m.StartOn("t", "f", 1)
		synctest.Wait()
		m.Die()
		second, also := traced(otel.Options{})
		k := kit.New(t, s, perdure.Options{Observer: second, Lease: 3 * time.Second}, flow)
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		spans := append(sent.GetSpans(), also.GetSpans()...)
		close(dead)
		want(t, outline(t, spans), `invoke_workflow f status=succeeded
  pass pass.lost=true ERROR
    step first
  pass status=succeeded takeover=true
    step second
`)
		byID := map[trace.SpanID]tracetest.SpanStub{}
		for _, s := range spans {
			byID[s.SpanContext.SpanID()] = s
		}
		links := 0
		for _, s := range spans {
			for _, l := range s.Links {
				links++
				if _, ok := valueOf(byID[l.SpanContext.SpanID()], "perdure.pass.lost"); !ok || l.SpanContext.TraceID() != s.SpanContext.TraceID() {
					t.Errorf("%s links to something else than the pass that was lost", s.Name)
				}
				if len(s.Events) != 1 || s.Events[0].Name != "takeover" {
					t.Errorf("the events of the takeover are %v", s.Events)
				}
			}
		}
		if links != 1 {
			t.Errorf("there are %d links, want the one at the crash", links)
		}
		if root := byID[spans[0].Parent.SpanID()]; root.StartTime.After(run.Created) && root.Name != "" {
			t.Errorf("the run began at %v, before its span", run.Created)
		}
		m.Stop()
		late := sent.GetSpans()
		if n := len(late); n != 2 {
			t.Fatalf("the worker that was thought dead has sent %d spans, want its two steps: its pass is reported already", n)
		}
		if outcome, _ := valueOf(late[1], "perdure.outcome"); outcome != "lost" {
			t.Errorf("a step whose result came too late has the outcome %q", outcome)
		}
	})
}

// A step whose result cannot be recorded, since the thread was taken away from the worker
// while it ran, does not look as if it counted.
func TestUnrecordedStepIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		other := kit.Runtime(t, s, perdure.Options{})
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "work", func(ctx context.Context) (int, error) {
				return 1, other.Erase(context.WithoutCancel(ctx), "t", perdure.EraseOptions{})
			})
		})
		tel, sent := traced(otel.Options{})
		k := kit.New(t, s, perdure.Options{Observer: tel}, flow)
		k.StartOn("t", "f", 1)
		synctest.Wait()
		k.Stop()
		steps := 0
		for _, span := range sent.GetSpans() {
			if span.Name != "step work" {
				continue
			}
			steps++
			if outcome, _ := valueOf(span, "perdure.outcome"); outcome != "lost" || span.Status.Code != codes.Error {
				t.Errorf("the outcome is %q, %v", outcome, span.Status)
			}
		}
		if steps != 1 {
			t.Errorf("there are %d spans of the step", steps)
		}
	})
}

// A child on a thread of its own is in the trace of its parent, and a run that was
// started in a trace is in that one.
func TestTraceOfTheCallerAndOfChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := perdure.NewFlow("child", func(ctx context.Context, n int) (int, error) {
			return perdure.Step(ctx, "double", func(context.Context) (int, error) {
				time.Sleep(time.Second) // of virtual time, in which the parent comes to wait
				return 2 * n, nil
			})
		})
		parent := perdure.NewFlow("parent", func(ctx context.Context, n int) (int, error) {
			c, err := perdure.Spawn(ctx, "half", "child", n)
			if err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "wait", c)
		})
		tel, sent := traced(otel.Options{})
		k := kit.New(t, nil, perdure.Options{Observer: tel}, parent, child)
		ctx, caller := tel.TracerProvider().Tracer("test").Start(t.Context(), "caller")
		_, err := k.Start(ctx, perdure.StartRequest{Flow: "parent", Input: 1, Thread: "t"})
		kit.NoErr(t, err)
		k.WaitFor("t", perdure.Succeeded)
		caller.End()
		k.Stop()
		want(t, outline(t, sent.GetSpans()), `caller
  invoke_workflow parent status=succeeded
    invoke_workflow child status=succeeded
      pass status=succeeded
        step double
    pass status=suspended
    pass status=succeeded
`)
	})
}

// Other runs have other traces, and a traceparent of the request counts if there is no
// span around it.
func TestTraceContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(context.Context, int) (int, error) { return 1, nil })
		tel, sent := traced(otel.Options{})
		k := kit.New(t, nil, perdure.Options{Observer: tel}, flow)
		const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for thread, trace := range map[string]string{"a": "", "b": "", "c": given, "d": "00-nonsense"} {
			k.MustStart(perdure.StartRequest{Thread: thread, Flow: "f", Input: 1, Trace: trace})
			k.WaitFor(thread, perdure.Succeeded)
		}
		k.Stop()
		traces := map[string]string{}
		for _, s := range sent.GetSpans() {
			if thread, _ := valueOf(s, "perdure.thread"); strings.HasPrefix(s.Name, "invoke") {
				traces[s.SpanContext.TraceID().String()] = thread
				if thread == "c" && s.Parent.SpanID().String() != "b7ad6b7169203331" {
					t.Errorf("the parent of the run is %s", s.Parent.SpanID())
				}
			}
		}
		if len(traces) != 4 || traces["0af7651916cd43dd8448eb211c80319c"] != "c" {
			t.Errorf("the traces are %v", traces)
		}
	})
}

// A sampler that decides by the id of a trace keeps all of a run or nothing.
func TestSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, sent := traced(otel.Options{Provider: []sdk.TracerProviderOption{sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(0.5)))}})
		k := kit.New(t, nil, perdure.Options{Observer: tel}, clerk())
		for i := range 20 {
			thread := fmt.Sprint("t", i)
			k.StartOn(thread, "triage", "broken")
			run := k.WaitFor(thread, perdure.Suspended)
			kit.NoErr(t, k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Decision: agent.DecisionApprove}))
			k.WaitFor(thread, perdure.Succeeded)
		}
		k.Stop()
		traces := map[trace.TraceID]int{}
		for _, s := range sent.GetSpans() {
			traces[s.SpanContext.TraceID()]++
		}
		if len(traces) == 0 || len(traces) == 20 {
			t.Errorf("%d of 20 runs were kept", len(traces))
		}
		for id, n := range traces {
			if n != 9 {
				t.Errorf("trace %s has %d spans, want all 9", id, n)
			}
		}
	})
}

// Logs that are made with the context of a step name its span, and failures are errors
// without the secrets of the run.
func TestLogsAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, sent := traced(otel.Options{})
		var lines bytes.Buffer
		log := slog.New(tel.LogHandler(slog.NewTextHandler(&lines, nil)))
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "try", func(ctx context.Context) (int, error) {
				log.With("a", 1).InfoContext(ctx, "hello")
				return 0, errors.New("no luck")
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 2}))
		})
		k := kit.New(t, nil, perdure.Options{Observer: tel, Logger: log}, flow)
		k.StartOn("t", "f", 1)
		k.WaitFor("t", perdure.Failed)
		k.Stop()
		spans := sent.GetSpans()
		want(t, outline(t, spans), `invoke_workflow f status=failed ERROR
  pass status=failed
    step try ERROR
    step try ERROR
`)
		for _, s := range spans {
			if s.Name == "step try" && !strings.Contains(lines.String(), "trace_id="+s.SpanContext.TraceID().String()+" span_id="+s.SpanContext.SpanID().String()) {
				t.Errorf("no line names the span of %s:\n%s", s.Name, &lines)
			}
		}
		for line := range strings.Lines(lines.String()) {
			if strings.Contains(line, "an attempt failed") && !strings.Contains(line, "trace_id=") {
				t.Errorf("a line of the runtime has no trace: %s", line)
			}
		}
		if !strings.Contains(lines.String(), "an attempt failed") {
			t.Errorf("the runtime logged nothing:\n%s", &lines)
		}
	})
}

// A request continues the trace of its caller, and the run that it starts continues
// that of the request.
func TestRequestsAreTraced(t *testing.T) {
	tel, sent := traced(otel.Options{})
	var recorded string
	h := tel.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded = tel.TraceContext(r.Context(), r.Header.Get("Traceparent"))
	}))
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for path, traced := range map[string]bool{"/v1/runs": true, "/healthz": false, "/metrics": false, "/console/": false} {
		sent.Reset()
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Traceparent", given)
		h.ServeHTTP(httptest.NewRecorder(), r)
		spans := sent.GetSpans()
		if got := len(spans) == 1; got != traced {
			t.Errorf("%s has %d spans", path, len(spans))
		}
		if want := given; !traced && recorded != want {
			t.Errorf("a run started by %s is recorded with %q, want %q", path, recorded, want)
		}
		if traced {
			if want := fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%s-01", spans[0].SpanContext.SpanID()); recorded != want {
				t.Errorf("a run started by %s is recorded with %q, want %q", path, recorded, want)
			}
		}
	}
	sent.Reset()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("WEIRD7", "/v1/runs", nil))
	if name := sent.GetSpans()[0].Name; name != "HTTP" {
		t.Errorf("a caller names a span %q", name)
	}
}

// A failed run that is retried has another span below its first, each sent once.
func TestRetriesHaveSpansOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, sent := traced(otel.Options{})
		tries := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (int, error) {
			return perdure.Step(ctx, "try", func(context.Context) (int, error) {
				if tries++; tries < 3 {
					return 0, perdure.Permanent(errors.New("no luck"))
				}
				return tries, nil
			})
		})
		k := kit.New(t, nil, perdure.Options{Observer: tel}, flow)
		run := k.StartOn("t", "f", 1)
		for range 2 {
			k.WaitFor("t", perdure.Failed)
			kit.NoErr(t, k.Retry(t.Context(), "t", run.ID, perdure.Note{}))
		}
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		want(t, outline(t, sent.GetSpans()), `invoke_workflow f status=failed ERROR
  invoke_workflow f status=failed ERROR
    pass status=failed
      step try ERROR
  invoke_workflow f status=succeeded
    pass status=succeeded
      step try
  pass status=failed
    step try ERROR
`)
	})
}

// docs/tracing.md names every attribute that the sources do.
func TestAttributesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"((gen_ai|perdure)\.[a-z_.]+)"`)
	for _, file := range []string{"span.go", "../agent/annotate.go"} {
		source, err := os.ReadFile(file)
		found := name.FindAllSubmatch(source, -1)
		if err != nil || len(found) == 0 {
			t.Fatal(file, err)
		}
		for _, one := range found {
			if !bytes.Contains(page, []byte("`"+string(one[1])+"`")) {
				t.Errorf("docs/tracing.md lacks %s of %s", one[1], file)
			}
		}
	}
}
