// Package mcptool makes the tools of MCP servers tools of agents.
package mcptool
