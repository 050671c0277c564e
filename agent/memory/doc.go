// Package memory keeps values that outlive threads, such as what agents know
// about a user, under a namespace and a key. agent.MemoryTools lets a model use
// it. The package may import perdure, store and internal/shelf; package agent
// stands on it.
package memory
