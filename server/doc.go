// Package server is Perdure's HTTP API as a handler: the operations of package
// api, event streams that can be resumed, and the faces that clients of other
// systems know.
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
// nothing. Everything is scoped to the tenant of the token, event streams
// included; /metrics, which is about the whole server, is for admins of the
// default tenant, and the number of streams in stats is that of the server. Without Options.Auth anyone who reaches the server may do anything;
// command serve refuses to listen beyond the machine then.
package server
