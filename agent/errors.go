package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// What can go wrong with an agent. They match also when they are read back
// from the journal.
var (
	// ErrOption: an agent or tool is not made as it has to be. The error names
	// everything that is wrong.
	ErrOption = perdure.Coded("agent-option", errors.New("agent: bad option"))
	// ErrFatal: a tool failed and said that the run has to, see [Fatal].
	ErrFatal = perdure.Coded("agent-fatal", errors.New("agent: fatal"))
	// ErrLimit: the agent has used up its turns, tokens, cost or time.
	ErrLimit = perdure.Coded("agent-limit", errors.New("agent: over its limit"))
	// ErrMistakes: the model made the same kind of mistake too often: calls of
	// tools that are not there or with wrong arguments, or an output that does
	// not fit.
	ErrMistakes = perdure.Coded("agent-mistakes", errors.New("agent: the model made too many mistakes"))
	// ErrRejected: the model made the same call three times in a run, and each
	// time it was rejected.
	ErrRejected = perdure.Coded("agent-rejected", errors.New("agent: the same call was rejected again"))
	// ErrRefused: the model or its provider refuses to answer.
	ErrRefused = perdure.Coded("llm-refused", errors.New("agent: the model refused"))
	// ErrTooLong: the conversation does not fit into the model's context, and
	// nothing more can be left out of it.
	ErrTooLong = perdure.Coded("llm-too-long", errors.New("agent: the conversation is too long for the model"))
	// ErrModel: the model could not be asked; the message says why.
	ErrModel = perdure.Coded("llm-failed", errors.New("agent: the model failed"))
)

// Fatal marks an error of a tool that is not for the model to handle: the run
// fails with it.
func Fatal(err error) error {
	if err == nil {
		return perdure.Permanent(ErrFatal)
	}
	return perdure.Permanent(fmt.Errorf("%w: %w", ErrFatal, err))
}

// modelError gives an error of a model its code, and says when to try again.
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
