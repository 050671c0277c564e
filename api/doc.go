// Package api defines Perdure's HTTP API in one place: a registry of operations,
// each described once by its name, route, scope, and input and output types. The
// routes of package server, the OpenAPI document, the methods of package client
// and the commands of package cli are derived from it.
//
// The input of an operation is a struct. Fields tagged path, query or header come
// from there; the others are the members of a JSON object, the body. The
// jsonschema tag documents a field, in the OpenAPI document and in the help of the
// command line.
//
//	type GetRun struct {
//		Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
//		Run    string `path:"run" json:"-" jsonschema:"id of the run, or newest"`
//	}
//
// Errors are problems (RFC 9457). A [Problem] has a stable type and matches one of
// the errors of package perdure, so that the same program works with a
// [perdure.Runtime] and over HTTP.
package api
