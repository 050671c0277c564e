// Package agent makes durable agents of language models and tools.
package agent
