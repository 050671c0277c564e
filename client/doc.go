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
// The differences: By is the token's subject, whatever a request says. The Err of
// a run has its text and matches no other error. Events of a Run end with the run.
//
// Events reconnects by itself when the connection or the server is lost for a
// while, without gaps or repetitions.
//
// Every other operation of package api can be called with [Do].
package client
