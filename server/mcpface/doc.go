// Package mcpface lets clients of the Model Context Protocol, such as coding agents,
// operate Perdure: start flows, follow runs, answer asks, fork threads, read the
// documentation. [Face] is for a server, at /mcp; [ServeIO] is for a program that
// speaks the protocol on its standard input and output. Enable the face with
//
//	server.New(rt, server.Options{Faces: []server.Face{mcpface.Face(mcpface.Options{})}})
//
// Tools are made from the operations of package api, by a table with a line for each
// (table.go). Each flow is a tool too, which starts a run and returns at once. A tool
// calls the API as any client does, in the name of the caller, and reaches threads in no
// other way. So tokens, tenants, users, scopes and limits apply as they do everywhere.
// Tools that the scopes of a token do not allow are neither listed nor executed.
//
// No call depends on a session or on an earlier one: any server of a store answers
// it. A run does not depend on the call that started it, and a call with an
// idempotency key can be repeated.
//
// It may import packages server and client, and what they import.
package mcpface
