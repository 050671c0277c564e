// Package server serves Perdure's HTTP API: the operations of package api, event
// streams that can be resumed, and faces for clients of other systems.
//
//	rt, err := perdure.Open(ctx, "sqlite:perdure.db", flow)
//	if err != nil {
//		return err
//	}
//	go rt.Work(ctx)
//	api := server.New(rt, server.Options{})
//	http.ListenAndServe("127.0.0.1:7373", api)
//
// A run never depends on a connection: closing one, or the server, cancels
// nothing. Everything is limited to the tenant of the token, event streams
// included; /metrics, which covers the whole server, is for admins of the default
// tenant, and the number of streams in stats is that of the server. Without
// Options.Auth anyone who reaches the server may do anything; the command serve
// then refuses to listen beyond the local machine.
package server
