package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// maxKept is how much of a tool's output is kept at all.
const maxKept = 4 << 20

// fitOutput makes an output one that a model can read: valid, and not too long. The
// whole of a long one goes into a file, if the agent has files.
func (s *session) fitOutput(ctx context.Context, t Tool, c llm.Call, out Output) (Output, string, error) {
	limit := 32 << 10
	if t.tool != nil && t.limit > 0 {
		limit = t.limit
	}
	whole := len(out.Text)
	out.Text = validText(truncate(out.Text, maxKept))
	if len(out.Text) <= limit {
		return out, "", nil
	}
	note := fmt.Sprintf("[The output has %d bytes, of which this is the beginning and the end.", whole)
	file := ""
	if s.agent.Files != nil {
		here, err := perdure.Here(ctx)
		if err != nil {
			return out, "", err
		}
		// Ids of calls may come again in each turn; the path does not.
		file = fmt.Sprintf("/outputs/%s-%s.txt", frameName(c.Name), callHash(here.Run, here.Path)[:12])
		if err := s.agent.Files.Write(ctx, file, out.Text); err != nil {
			// The tool has done what it does; its result is not to be lost.
			file, note = "", note+fmt.Sprintf(" It could not be kept in a file: %v.", err)
		} else {
			note += fmt.Sprintf(" The file %s has the first %d bytes of it; read it with read_file.", file, len(out.Text))
		}
	}
	out.Text = note + "]\n" + shorten(out.Text, limit)
	return out, file, nil
}

func truncate(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
