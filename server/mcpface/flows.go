package mcpface

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// flowPrefix begins the names of the tools of flows. No other tool begins with it.
const flowPrefix = "flow_"

// maxToolName is the length that all clients and models accept.
const maxToolName = 64

var (
	notInNames = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
	hashed     = regexp.MustCompile(`-[0-9a-f]{8}$`)
)

// flowToolName returns the name of the tool of a flow. It depends on nothing but the
// name of the flow, and no two flows have the same: a name that does not fit is
// changed and ends with its hash, as does one that looks as if it did.
func flowToolName(flow string) string {
	name := notInNames.ReplaceAllString(flow, "_")
	if name == flow && len(flowPrefix+name) <= maxToolName && !hashed.MatchString(name) {
		return flowPrefix + name
	}
	sum := sha256.Sum256([]byte(flow))
	end := "-" + hex.EncodeToString(sum[:4])
	return flowPrefix + name[:min(len(name), maxToolName-len(flowPrefix)-len(end))] + end
}

// handle is what the tool of a flow returns.
type handle struct {
	Thread string         `json:"thread" jsonschema:"id of the thread"`
	Run    string         `json:"run" jsonschema:"id of the run"`
	Flow   string         `json:"flow" jsonschema:"name of the flow"`
	Status perdure.Status `json:"status" jsonschema:"what the run does now"`
	Seq    uint64         `json:"seq" jsonschema:"sequence of the entry that queued the run"`
	Follow string         `json:"follow" jsonschema:"how to learn what becomes of it"`
}

// flowInput is what the tool of a flow takes besides the input.
type flowInput struct {
	Thread   string            `json:"thread,omitempty" jsonschema:"id of the thread, created on first use; a new one by default"`
	Key      string            `json:"idempotency_key,omitempty" jsonschema:"a text of your choice: repeating the call with it starts nothing new, and returns the same run"`
	Title    string            `json:"title,omitempty" jsonschema:"title of a new thread"`
	User     string            `json:"user,omitempty" jsonschema:"who owns a new thread; the token's subject by default"`
	Metadata map[string]string `json:"metadata,omitempty" jsonschema:"metadata of a new thread"`
	Policy   perdure.Policy    `json:"policy,omitempty" jsonschema:"what to do if the thread is busy: enqueue (default), reject, interrupt, steer, beside"`
	Budget   map[string]int64  `json:"budget,omitempty" jsonschema:"what the run may spend, by unit"`
}

// flowTool returns the tool that starts a flow.
func flowTool(flow api.FlowInfo) *tool {
	in := schemaOf[flowInput]()
	in.Properties["input"] = inputSchema(flow)
	in.PropertyOrder = append([]string{"input"}, in.PropertyOrder...)
	what := "flow"
	if flow.Agent {
		what = "agent"
	}
	t := &tool{scope: api.ScopeRun, Tool: &mcp.Tool{
		Name: flowToolName(flow.Name), Title: "Start " + flow.Name,
		Description: fmt.Sprintf("Start a run of the %s %s. It returns at once, with the thread and the run; events_follow and runs_wait tell what becomes of it. The run does not depend on this call. With the same idempotency_key the call can be repeated.", what, flow.Name),
		InputSchema: in, OutputSchema: schemaOf[handle](), Annotations: hints(false, true, false, true),
	}}
	t.call = func(ctx context.Context, c *client.Client, args map[string]json.RawMessage) (*mcp.CallToolResult, error) {
		var q flowInput
		start := perdure.StartRequest{Flow: flow.Name}
		if input, given := args["input"]; given {
			start.Input = input
			delete(args, "input")
		}
		if key, given := args["idempotency_key"]; given && string(key) == `""` {
			return nil, api.Invalid("the argument idempotency_key is empty; give a text or omit it")
		}
		for name, to := range map[string]any{"thread": &q.Thread, "idempotency_key": &q.Key, "title": &q.Title, "user": &q.User, "metadata": &q.Metadata, "policy": &q.Policy, "budget": &q.Budget} {
			if err := take(args, name, to); err != nil {
				return nil, err
			}
		}
		if err := rest(args, in.PropertyOrder); err != nil {
			return nil, err
		}
		if len(q.Thread)+len(q.Key) > maxName {
			return nil, api.Invalid("ids of more than %d bytes", maxName)
		}
		start.Thread, start.Key, start.Title, start.User = q.Thread, q.Key, q.Title, q.User
		start.Metadata, start.Policy, start.Budget = q.Metadata, q.Policy, q.Budget
		run, err := c.Start(ctx, start)
		if err != nil {
			return nil, err
		}
		return answer(&handle{Thread: run.Thread, Run: run.ID, Flow: flow.Name, Status: run.Status, Seq: run.Seq,
			Follow: "call events_follow or runs_wait with this thread and run"}, fromPerdure)
	}
	return t
}

// inputSchema returns the schema of a flow's input.
func inputSchema(flow api.FlowInfo) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	switch {
	case flow.Agent:
		s.AnyOf = []*jsonschema.Schema{{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "object"}}}
		s.Description = "the message: a text, or a list of parts"
	case len(flow.Input) > 0 && !strings.Contains(string(flow.Input), `"$ref"`):
		if json.Unmarshal(flow.Input, s) != nil {
			s = &jsonschema.Schema{}
		}
	}
	s.Description = cmp.Or(s.Description, "what the flow takes")
	return s
}
