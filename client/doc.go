// Package client is a [perdure.Runtime] over HTTP: it has the same methods, with
// the same types and errors, while the workers of a server execute the runs. Code
// that works with one works with the other.
//
//	c, err := client.New("http://127.0.0.1:7373", client.Options{})
//	if err != nil {
//		return err
//	}
//	run, err := c.Start(ctx, perdure.StartRequest{Flow: "research", Input: "cheese"})
//
// There are three differences. By is the token's subject, whatever a request says. The
// Err of a run has the recorded text but matches no other error. Events with a Run end
// with the run.
//
// If the connection or the server is lost for a while, Events reconnects by itself,
// without gaps or repetitions.
//
// [Do] calls the other operations of package api.
package client
