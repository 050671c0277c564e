package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// wrongScheme returns an error if a server that could not be talked to uses TLS and the
// URL does not, or the other way round: either side then waits for the other until
// somebody gives up, and waiting longer does not help. Nor does it if both use TLS, config,
// and the server refuses the client.
func wrongScheme(ctx context.Context, address string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	if config == nil {
		// Who the server is does not matter: nothing is sent to it.
		if tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) != nil {
			return nil
		}
		return fmt.Errorf("%w: redisstore: the server uses TLS on this port; write rediss:// instead of redis://", store.ErrInvalid)
	}
	answer := make([]byte, 7)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return nil
	}
	if n, _ := conn.Read(answer); !strings.HasPrefix(string(answer[:n]), "+PONG") && !strings.HasPrefix(string(answer[:n]), "-NOAUTH") {
		return unwelcome(ctx, address, config)
	}
	return fmt.Errorf("%w: redisstore: the server does not use TLS on this port; write redis:// instead of rediss://, or name another port", store.ErrInvalid)
}
