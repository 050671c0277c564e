// Package console is the web console of Perdure, a page that shows threads, answers
// asks and starts runs through the API of package server. It imports nothing else
// of Perdure: the page itself calls the API, with the rights of its user.
//
// perdure dev and perdure serve have it at /console/. In a program of your own,
// mount it beside the API on the same host:
//
//	mux.Handle("/v1/", api)
//	mux.Handle("/console/", console.Handler(console.Options{}))
//
// Below another path, say where the browser finds both:
//
//	mux.Handle("/ops/v1/", http.StripPrefix("/ops", api))
//	mux.Handle("/ops/console/", console.Handler(console.Options{Base: "/ops/console/", API: "/ops/"}))
//
// The handler may be called with Base in the request's path or, as behind
// [http.StripPrefix] or a proxy that removes it, without.
//
// The page needs no other host, and its Content-Security-Policy allows none. It has
// no inline scripts. Everything in it is static and the same for everyone, so the
// handler checks no tokens.
//
// The page is built from console/web with make console, and the result, in
// console/dist, is part of the repository: programs that import the package need no
// Node.js. In index.html, these are replaced by the handler:
//
//   - __NONCE__ is a new nonce for each response, which styles may use.
//   - Addresses in attributes that begin with /console/ or ./ begin with Base
//     instead, and so does the content of the meta element perdure-base.
//   - __API__ is where the API is: the path to which v1/threads is appended.
package console
