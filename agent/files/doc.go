// Package files keeps the text files of agents: in the thread's state, in a
// folder on disk, in the owner's memory, or in a database of your own.
// agent.Options.Files gives an agent one of these, with tools to use it. The
// package may import perdure and agent/memory; package agent stands on it.
package files
