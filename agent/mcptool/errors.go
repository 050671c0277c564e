package mcptool

import (
	"errors"

	"github.com/perdure/perdure"
)

// Errors of servers. They also match when read back from the journal.
var (
	// ErrOption: a server has wrong options. The error names all of them.
	ErrOption = perdure.Coded("mcp-option", errors.New("mcptool: bad option"))
	// ErrUnreachable: the server could not be started or reached. The call was
	// not sent, so the error is marked [perdure.NotDone].
	ErrUnreachable = perdure.Coded("mcp-unreachable", errors.New("mcptool: the server cannot be reached"))
	// ErrRefused: the server refused the call without running it, for example
	// because it has no such tool or wants a login. It is marked
	// [perdure.NotDone].
	ErrRefused = perdure.Coded("mcp-refused", errors.New("mcptool: the server refused the call"))
	// ErrFailed: the server answered the call with an error of the protocol, which
	// does not say how far the call got.
	ErrFailed = perdure.Coded("mcp-failed", errors.New("mcptool: the server failed"))
	// ErrLost: the call was sent, but its result did not arrive: the server died,
	// the connection broke, or it timed out. The call may have happened.
	ErrLost = perdure.Coded("mcp-lost", errors.New("mcptool: the call may have happened"))
	// ErrList: the server's list of tools is not usable.
	ErrList = perdure.Coded("mcp-list", errors.New("mcptool: the server's list of tools cannot be used"))
	// ErrClosed: Close was called.
	ErrClosed = perdure.Coded("mcp-closed", errors.New("mcptool: closed"))
)
