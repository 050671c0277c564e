// Package mcptool makes the tools of MCP servers tools of agents.
//
// A [Server] is a program that speaks over its standard input and output, or a
// service that speaks streamable HTTP. It may be a package-level variable:
// nothing is started before it is used.
//
//	var files = mcptool.Command("files", "mcp-server-filesystem", "/srv/shared")
//	var shop = mcptool.HTTP("shop", "https://shop.example/mcp").
//		Set(mcptool.Options{Except: []string{"debug_*"}}).
//		With("refund", agent.AtMostOnce(time.Minute))
//
// # Tools
//
// [Server.Tools] asks the server for its tools; call it when the program starts:
//
//	tools, err := shop.Tools(ctx)
//
// Models know them as shop_refund and so on, the server's name first, so that
// two servers can have tools of the same name. Characters that models do not
// accept become _, and names that are too long end with a hash. Two tools that
// would get the same name are an error. So are an endless list, a schema that does
// not describe an object or might never finish checking, and a pattern in Only or
// With that matches nothing: a rule with a typo protects nobody.
//
// # Resuming
//
// A run that continues after a restart gets the tools that the agent has then.
// Finished calls are in the journal and are not made again, whatever became of the
// server. But a tool that is gone cannot be called any more, and one whose
// description has changed is another tool to the model. To always have the same
// tools, keep the list: [Server.List] returns values that can be written to a file
// as JSON and embedded, and [Server.Declare] makes tools from them without asking the
// server. This also helps with servers that cannot be asked at the start because each
// user has a login of their own, and it keeps out descriptions that nobody has
// read.
//
// # Approval
//
// A tool needs a person's approval unless its server says that it only reads.
// [Options.Ask] chooses another rule, and [Server.With] gives options to tools
// by their names:
//
//	shop.With("add_*", mcptool.NoApproval())
//	shop.With("refund", agent.WithApproval(agent.Approval{Who: []string{"ann"}}))
//
// What a server says about its tools is only as trustworthy as the server. If it
// calls a tool both read-only and destructive, the tool counts as destructive.
//
// # Calls
//
// All calls of a process share one session or, where users have logins of their
// own, all calls of a user do. When a program has ended, the next call starts it
// again: at once the first time, then after pauses of up to 10 seconds if it keeps
// failing. The error includes what it last wrote to its standard error.
//
// A call is a step, so it may run again if the process dies in the middle of
// it, unless the tool is [agent.AtMostOnce]. Errors say what is known:
//
//	ErrUnreachable  it was not sent               marked perdure.NotDone
//	ErrRefused      the server did not run it     marked perdure.NotDone
//	ErrFailed       the server failed during it   unknown
//	ErrLost         it was sent, no result came   unknown
//
// If an HTTP server no longer knows the session, because it was restarted, a new
// session is opened, and the call that the server refused is sent once more. The
// server says so with a 404, or with a 400 that it also gives to a ping in that session.
//
// This package never repeats a call whose outcome is unknown: the tool's Retry does
// so or, for an at-most-once tool, a person or its Reconcile decides. A server that
// knows [MetaKey] can recognise a repeated call by its key. When the context ends, the
// server is told to cancel the call.
//
// What the tool itself reports as an error is its output, which the model
// reads. Images, sounds and files become media; links become text; structured
// content becomes JSON; where texts say the same, the model reads it once. A
// result over [Options.MaxMessage] is left out, and the model is told. Progress
// becomes deltas, see [Progress].
//
// # Secrets
//
// A program gets the variables of [Options].Env and what programs need, such as
// PATH and HOME, but none of this process's other variables. Over HTTP, the
// secret of Options.Login is the bearer token. A call waits until the user has
// given it, and users have sessions of their own:
//
//	mcptool.HTTP("github", "https://github.example/mcp").Set(mcptool.Options{
//		Login: agent.Credential{Name: "github", Prompt: "A token for GitHub"},
//	})
//
// A token that belongs to the program and not to a user comes by Options.Token.
// Tokens and headers go to the server's own origin only, not along redirects,
// and are taken out of errors; tokens also out of what the server returns.
//
// Servers get nothing else: when they ask for a model's reply (sampling) or for
// a person's input (elicitation), they are refused, and when they ask for
// folders (roots), they get an empty list.
package mcptool
