package agent

import "context"

// CallTool calls a tool as an agent does, with its arguments checked.
func CallTool(ctx context.Context, t Tool, args string) (Output, error) {
	raw, _, err := t.arguments(args)
	if err != nil {
		return Output{}, err
	}
	return t.call(ctx, raw)
}
