// Package perdure is a durable runtime for AI agents: it writes every step of
// an agent's turn down before acting on it, so that any process can go on
// where another stopped.
//
// The runtime stands on package store, which keeps journals and cells; that
// package and its drivers are what exists today. The verbs of the runtime
// (Step, Ask, Sleep and the others) come on top of it; see the status in the
// README.
package perdure
