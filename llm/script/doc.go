// Package script is a model that follows a script, without a network: for
// demonstrations, examples and tests.
//
//	model, err := script.Load("desk.yaml")
//
// A reply depends only on the request. So the model says the same in any process,
// even in one that continues where another was killed. The only exception is
// times, below.
//
// # A script
//
// A script is YAML or JSON:
//
//	# A desk for refunds, with a clerk and a writer.
//	model: demo
//	rules:
//	  - name: the service is busy
//	    times: 1
//	    error: {kind: overloaded, retry_after: 2s}
//
//	  - name: look the order up
//	    when:
//	      system: You are the clerk
//	      last: {regexp: 'refund order (?P<order>\S+)'}
//	    reasoning: I need the order first.
//	    text: Let me look at {{.Match "order"}}.
//	    chunks: 4
//	    delay: 5ms
//	    calls:
//	      - name: lookup
//	        args: {order: '{{.Match "order"}}', full: true}
//
//	  - name: pay
//	    when: {tool: lookup, last: {regexp: '"amount": ?(\d+)'}}
//	    calls:
//	      - name: refund
//	        args: '{"amount": {{.Match 1}}}'
//
//	  - name: done
//	    when: {tool: refund}
//	    text: "It is done: {{.Result \"refund\"}}."
//
//	  - name: the writer
//	    when: {system: You are the writer, turn: 0}
//	    text: [Dear customer, ", ", all is well.]
//	    usage: {input: 100, output: 12}
//
//	default:
//	  text: I can only refund orders.
//
// The first rule that fits a request is used, or default if none fits. Without a
// default that is an [llm.ErrInvalid] that shows what rules could have matched.
// The optional key model is the name of the model in replies.
//
// Unknown keys are errors that name the line and say what to write instead. YAML
// aliases are not supported.
//
// # When
//
// A rule fits if all conditions that it gives hold:
//
//	last     the text of the last message
//	system   the system text: one script serves several agents
//	role     of the last message: user, assistant or tool
//	tool     a tool of this name has answered: the last message is a tool's, and
//	         one of the results since the last message of an assistant is its
//	turn     how many messages of an assistant the request holds since the last
//	         one of a user: 0 is the first reply to what the user said. 2+ is
//	         two or more
//	replies  how many messages of an assistant the request holds in all; where a
//	         history is shortened, they are fewer
//	has      a tool of this name is offered
//
// A text given for last or system must be contained in it. A mapping says how it
// must match: equals, contains, regexp (as in package regexp); all that are given
// must. The text of a tool message is that of all results since the last message
// of an assistant, one per line.
//
// With times: n a rule is used only n times and then skipped, for example for a
// provider that fails twice and then answers. Uses are counted in the [Model], in
// memory: a model that is loaded again counts from 0. Nothing else is remembered
// between requests. A rule with times needs no when.
//
// # Replies
//
//	text       the text; a list gives the chunks in which it arrives
//	reasoning  the reasoning, which comes before the text
//	calls      tool calls: name; args as a mapping, or as a text that is sent
//	           unchanged, valid or not; id, to replace the generated one
//	chunks     into how many pieces text, reasoning and args are each cut; 1
//	wait       before the first piece: 200ms, 1.5s
//	delay      between pieces
//	usage      input, output, cache_read, cache_write, reasoning, in tokens; if
//	           left out, a token is 4 bytes
//	stop       end, calls, length, refused, other; none cuts the reply off. If
//	           left out, calls if there are any, or else end
//	error      instead of the end: a kind, or a mapping with kind, message, code,
//	           status, retry_after and after, the number of pieces that come
//	           before it, 0 if left out
//
// The kinds of errors are rate-limited, overloaded, interrupted, too-long,
// refused, auth and invalid, for the errors of package llm.
//
// Ids of calls are made from the number of messages in the request and the
// position of the call in the reply: call-3-0. They are unique in a conversation.
//
// # Templates
//
// Texts of replies, including those in args, are templates as in package
// text/template, with {{if}} and these values:
//
//	{{.Last}}            the text of the last message
//	{{.User}}            the text of the last message of a user
//	{{.System}}          the system text
//	{{.Turn}}            as in when
//	{{.Match 1}}         a group of the regexp of last, or of system if last has
//	{{.Match "name"}}    none; 0 is the whole match
//	{{.Result "tool"}}   the text of the latest result of a tool
//	{{json .Last}}       a text as JSON, for args that are a text
//
// # Tests
//
// [New] makes a model from replies in Go, which are given in turn.
// [Model.Requests] lists the requests to a model.
package script
