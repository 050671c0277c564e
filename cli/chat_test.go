package cli

import (
	"strings"
	"testing"
)

func TestChatIsAConversationThatIsKept(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		r := p.run("hello\n\nand now?\n", "chat", "clerk", "--thread", "talk").want(exitOK, "perdure chat clerk --thread talk")
		if got := strings.Count(r.out, "I can only pay."); got != 2 || strings.Contains(r.out, ">") {
			t.Errorf("the conversation is\n%s", r.out)
		}
		p.run("", "chat", "clerk", "--thread", "talk").want(exitOK, "> │ hello", "> │ and now?")
		p.run("", "chat", "clerk").want(exitOK).only("")
		p.run("x\n", "chat", "nope").want(exitNotFound, "unknown flow")
		p.run("x\n", "chat", "clerk", "--json").want(exitUsage, "run --json")
		p.run("x\n", "chat", "echo").want(exitOK).only("│ x\n")
		p.run("x\n", "chat", "fail").want(exitOK, "failed: /call", "perdure retry")
	})
}

func TestChatAsksInBetween(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("pay 5\na\nthanks\n", "chat", "clerk", "--thread", "a").want(exitOK, "I have to ask.", "[a]pprove", `"amount": 5`, "The tool says: paid.", "I can only pay.")
		// Nobody is there to answer: the ask stays, and is shown next time.
		p.run("pay 7\n", "chat", "clerk", "--thread", "b").want(exitOK, "[a]pprove")
		p.run("", "asks", "--thread", "b").want(exitOK, "clerk wants to call pay")
		p.run("r no\n", "chat", "clerk", "--thread", "b").want(exitOK, "> │ pay 7", "answered", "no")
		p.run("pay 9\ns\n", "chat", "clerk", "--thread", "c").want(exitOK, "answer later")
	})
}
