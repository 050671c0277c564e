package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// Errors of agents. They also match when read back from the journal.
var (
	// ErrOption: an agent or tool has wrong options. The error names all of them.
	ErrOption = perdure.Coded("agent-option", errors.New("agent: bad option"))
	// ErrFatal: a tool failed in a way that ends the run, see [Fatal].
	ErrFatal = perdure.Coded("agent-fatal", errors.New("agent: fatal"))
	// ErrLimit: the agent has used up its turns, tokens, cost or time.
	ErrLimit = perdure.Coded("agent-limit", errors.New("agent: over its limit"))
	// ErrMistakes: the model made too many mistakes in a row: calls of unknown
	// tools, wrong arguments, or an output that does not fit.
	ErrMistakes = perdure.Coded("agent-mistakes", errors.New("agent: the model made too many mistakes"))
	// ErrRejected: the same call was rejected three times in a run.
	ErrRejected = perdure.Coded("agent-rejected", errors.New("agent: the same call was rejected again"))
	// ErrRefused: the model or its provider refused to answer.
	ErrRefused = perdure.Coded("llm-refused", errors.New("agent: the model refused"))
	// ErrTooLong: the conversation exceeds the model's context, and nothing more
	// can be left out.
	ErrTooLong = perdure.Coded("llm-too-long", errors.New("agent: the conversation is too long for the model"))
	// ErrModel: the request to the model failed; the message says why.
	ErrModel = perdure.Coded("llm-failed", errors.New("agent: the model failed"))
)

// Fatal marks an error of a tool that fails the run instead of being reported to the
// model.
func Fatal(err error) error {
	if err == nil {
		return perdure.Permanent(ErrFatal)
	}
	return perdure.Permanent(fmt.Errorf("%w: %w", ErrFatal, err))
}

// modelError gives an error of a model its code, and the time to try again.
func modelError(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case llm.Temporary(err):
		return perdure.After(llm.RetryAfter(err), fmt.Errorf("%w: %w", ErrModel, err))
	case errors.Is(err, llm.ErrTooLong):
		return perdure.Permanent(fmt.Errorf("%w: %w", ErrTooLong, err))
	case errors.Is(err, llm.ErrRefused):
		return perdure.Permanent(fmt.Errorf("%w: %w", ErrRefused, err))
	}
	return perdure.Permanent(fmt.Errorf("%w: %w", ErrModel, err))
}
