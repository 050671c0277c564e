package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
)

func TestChatIsAConversationThatIsKept(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("hello\n\nand now?\n", "chat", "clerk", "--thread", "talk").want(exit.OK, "perdure chat clerk --thread talk")
		if got := strings.Count(r.out, "I can only pay."); got != 2 || strings.Contains(r.out, ">") {
			t.Errorf("the conversation is\n%s", r.out)
		}
		p.run("", "chat", "clerk", "--thread", "talk").want(exit.OK, "> │ hello", "> │ and now?")
		p.run("", "chat", "clerk").want(exit.OK).only("")
		p.run("x\n", "chat", "nope").want(exit.NotFound, "unknown flow")
		p.run("x\n", "chat", "clerk", "--json").want(exit.BadUsage, "run --json")
		p.run("x\n", "chat", "echo").want(exit.OK).only("│ x\n")
		p.run("x\n", "chat", "fail").want(exit.OK, "failed: /call", "perdure retry")
	})
}

func TestChatAsksInBetween(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("pay 5\na\nthanks\n", "chat", "clerk", "--thread", "a").want(exit.OK, "I have to ask.", "[a]pprove", `"amount": 5`, "The tool says: paid.", "I can only pay.")
		// Nobody is there to answer: the ask stays, and is shown next time.
		p.run("pay 7\n", "chat", "clerk", "--thread", "b").want(exit.OK, "[a]pprove")
		p.run("", "asks", "--thread", "b").want(exit.OK, "clerk wants to call pay")
		p.run("r no\n", "chat", "clerk", "--thread", "b").want(exit.OK, "> │ pay 7", "answered", "no")
		p.run("pay 9\ns\n", "chat", "clerk", "--thread", "c").want(exit.OK, "answer later")
	})
}

// A chat that is stopped during a reply says why it does not end at once.
func TestChatSaysThatItHandsOver(t *testing.T) {
	p := stored(t)
	ctx, stop := context.WithCancel(t.Context())
	p.flows = []perdure.Flow{perdure.NewFlow("slow", func(inner context.Context, _ string) (string, error) {
		return perdure.Step(inner, "reply", func(context.Context) (string, error) {
			stop()
			<-ctx.Done()
			return "done", nil
		})
	})}
	p.runIn(ctx, "hello\n", "chat", "slow").want(exit.Interrupted, "handing the run over")
}
