// Package client is a [perdure.Runtime] over HTTP: it has the same methods, with
// the same types and errors, and the runs are executed by the workers of a
// server. What works with one works with the other.
//
//	c, err := client.New("http://127.0.0.1:7373", client.Options{})
//	if err != nil {
//		return err
//	}
//	run, err := c.Start(ctx, perdure.StartRequest{Flow: "research", Input: "cheese"})
//
// What differs: By is who the token stands for, whatever a request says. The Err
// of a run is its text and matches no other error. Events of a Run end with it.
//
// Events goes on by itself when the connection or the server is gone for a
// while, without a gap and without repeating anything.
//
// Everything else that the API has can be called by [Do] with an operation of
// package api.
package client
