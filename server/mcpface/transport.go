package mcpface

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is the size of the largest message in bytes.
const maxLine = 16 << 20

// answerTime is how long calls may take that are under way when the input ends. It is
// shorter than events_follow may wait, since nobody may be there any more.
const answerTime = 5 * time.Second

// lineTransport is a transport with a message in each line. Unlike the one of the SDK it goes on
// after a line that is no message, and answers the calls that came before the end of its
// input: a script may write them all at once.
type lineTransport struct {
	in  io.Reader
	out io.Writer
}

// Connect connects.
func (t lineTransport) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{out: t.out, calls: map[jsonrpc.ID]int{}, read: make(chan readLine), answered: make(chan struct{}, 1), closed: make(chan struct{})}
	go c.readLines(bufio.NewReaderSize(t.in, 64<<10))
	return c, nil
}

// readLine is a line, or why there are no more.
type readLine struct {
	data []byte
	err  error
}

// lineConn is a connection.
type lineConn struct {
	read   chan readLine
	closed chan struct{}
	close  sync.Once

	mu       sync.Mutex
	out      io.Writer
	calls    map[jsonrpc.ID]int // under way, whose answers someone waits for
	answered chan struct{}      // has an item after an answer
}

// errLong means that a line is too long.
var errLong = fmt.Errorf("a message has at most %d bytes", maxLine)

// readLines reads lines in a goroutine of its own: nothing else can end a read of the
// standard input, which leaves the goroutine behind.
func (c *lineConn) readLines(in *bufio.Reader) {
	for {
		data, err := nextLine(in)
		select {
		case c.read <- readLine{data, err}:
		case <-c.closed:
			return
		}
		if err != nil && !errors.Is(err, errLong) {
			return
		}
	}
}

// nextLine returns the next line. One that is too long is read to its end.
func nextLine(in *bufio.Reader) (line []byte, err error) {
	for long := false; ; {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case long:
			return nil, errLong
		default:
			return line, nil
		}
	}
}

// Read returns the next message. The end of the input waits for answers.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var l readLine
		select {
		case l = <-c.read:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		l.data = bytes.TrimSpace(l.data)
		switch {
		case errors.Is(l.err, errLong):
			if err := c.write(refusal(nullID, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: l.err.Error()})); err != nil {
				return nil, err
			}
			continue
		case l.err != nil:
			c.finish(ctx)
			return nil, l.err
		case len(l.data) == 0:
			continue
		}
		m, id, wrong := parse(l.data)
		if wrong != nil {
			if err := c.write(refusal(id, wrong)); err != nil {
				return nil, err
			}
			continue
		}
		if q, ok := m.(*jsonrpc.Request); ok {
			c.mu.Lock()
			if q.IsCall() {
				c.calls[q.ID]++
			} else if id, ok := cancelled(q); ok {
				delete(c.calls, id)
			}
			c.mu.Unlock()
		}
		return m, nil
	}
}

// cancelled returns the id of the call that a message cancels, false if it cancels none.
func cancelled(q *jsonrpc.Request) (id jsonrpc.ID, ok bool) {
	var p struct{ RequestID any }
	if q.Method != "notifications/cancelled" || json.Unmarshal(q.Params, &p) != nil {
		return id, false
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	return id, err == nil && id.IsValid()
}

// finish waits for the answers to the calls that are under way.
func (c *lineConn) finish(ctx context.Context) {
	late := time.After(answerTime)
	for {
		c.mu.Lock()
		n := len(c.calls)
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.answered:
		case <-late:
			return
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Write writes a message. The answer to a call that was cancelled is none: whoever
// cancelled it does not expect one any more.
func (c *lineConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, answers := m.(*jsonrpc.Response)
	if answers && !c.expects(r.ID) {
		return nil
	}
	data, err := jsonrpc.EncodeMessage(withCode(m))
	if err == nil {
		err = c.write(data)
	}
	if answers {
		c.mu.Lock()
		if c.calls[r.ID]--; c.calls[r.ID] <= 0 {
			delete(c.calls, r.ID)
		}
		c.mu.Unlock()
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
	return err
}

// expects reports whether someone waits for the answer to a call.
func (c *lineConn) expects(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id] > 0
}

func (c *lineConn) write(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.out.Write(append(data, '\n'))
	return err
}

// Close ends reads. Whoever has given the input and the output closes them.
func (c *lineConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return nil
}

// SessionID returns "": there are no sessions.
func (c *lineConn) SessionID() string { return "" }
