package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdio is a connection to a program: messages as lines of JSON. It replaces the
// SDK's, which cannot tell whether a request was written, waits forever for a
// program that does not read, and gives up on a line that is too long or not a
// message.
type stdio struct {
	child *child
	max   int
	in    *bufio.Reader
	turn  chan struct{} // held while writing
	once  sync.Once
}

var (
	_ mcp.Transport  = (*stdio)(nil)
	_ mcp.Connection = (*stdio)(nil)
)

// Connect returns the connection itself.
func (c *stdio) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID returns "": programs have no sessions.
func (c *stdio) SessionID() string { return "" }

// Read returns the next message. Anything else, such as a log line on the wrong
// output, is kept for errors and skipped.
func (c *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line, over, err := c.line()
		if err != nil {
			return nil, err
		}
		if over != nil {
			return over, nil
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		msg, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			fmt.Fprintf(c.child.said, "\n(on its standard output) %s\n", clip(string(line), 500))
			continue
		}
		return msg, nil
	}
}

const (
	edge    = 256 // bytes at either end of a long line, which hold its id
	tooLong = 16  // times the limit, after which the session gives up on a line
)

// line reads a line. For one over the limit it keeps only the edges and returns an
// error as the response, so that the session survives it.
func (c *stdio) line() (line []byte, over *jsonrpc.Response, err error) {
	var head, tail []byte
	size := 0
	for {
		part, err := c.in.ReadSlice('\n')
		size += len(part)
		if size <= c.max {
			line = append(line, part...)
		} else {
			if line != nil {
				head, tail = bytes.Clone(line[:min(edge, len(line))]), bytes.Clone(line[max(0, len(line)-edge):])
				line = nil
			} else if head == nil {
				head = bytes.Clone(part[:min(edge, len(part))])
			}
			tail = append(tail, part...)
			tail = append(tail[:0], tail[max(0, len(tail)-edge):]...)
		}
		switch {
		case err == nil && size <= c.max:
			return line, nil, nil
		case err == nil:
			over, err := tooLargeResponse(head, tail, c.max)
			return nil, over, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, nil, err
		case size > c.max*tooLong:
			return nil, nil, fmt.Errorf("a message of more than %d bytes", size)
		}
	}
}

// codeTooLarge is the code of the error that stands for a response over the
// limit.
const codeTooLarge = -32097

var (
	idFirst = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,`)
	idLast  = regexp.MustCompile(`\}\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

func tooLargeResponse(head, tail []byte, limit int) (*jsonrpc.Response, error) {
	m := idFirst.FindSubmatch(head)
	if m == nil {
		m = idLast.FindSubmatch(tail)
	}
	if m == nil {
		return nil, fmt.Errorf("a message of more than %d bytes", limit)
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return nil, err
	}
	id, err := jsonrpc.MakeID(n)
	if err != nil {
		return nil, err
	}
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("its result is larger than %d bytes", limit)}}, nil
}

// Write writes a message. If ctx ends while the program does not read, the program
// is killed: the rest of the message could never be sent.
func (c *stdio) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("the message: %w", err)
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	limited := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.child.stdin.SetWriteDeadline(time.Now().Add(patience))
		close(limited)
	})
	n, err := c.child.stdin.Write(append(data, '\n'))
	if !stop() {
		<-limited
	}
	if n > 0 {
		markOf(ctx).sent.Store(true)
	}
	if err != nil {
		c.child.kill()
		return fmt.Errorf("writing to the program: %w", err)
	}
	c.child.stdin.SetWriteDeadline(time.Time{})
	return nil
}

// Close closes the program's input and output.
func (c *stdio) Close() error {
	c.once.Do(func() {
		c.child.stdin.Close()
		c.child.stdout.Close()
	})
	return nil
}
