// Package api is Perdure's HTTP API in one place: a registry of operations,
// each described once by its name, route, scope, and the types that it takes
// and gives. The routes of package server, the OpenAPI document, the methods of
// package client and the commands of package cli follow from it.
//
// An operation takes a struct. A field tagged path, query or header comes from
// there; the others are the members of a JSON object, the body. The jsonschema
// tag says what a field means: in the OpenAPI document, and in the help of the
// command line.
//
//	type GetRun struct {
//		Thread string `path:"thread" json:"-" jsonschema:"id of the thread"`
//		Run    string `path:"run" json:"-" jsonschema:"id of the run, or newest"`
//	}
//
// Errors are problems (RFC 9457). A [Problem] has a type that does not change,
// and stands for one of the errors of package perdure, so that the same program
// works with a [perdure.Runtime] and over HTTP.
package api
