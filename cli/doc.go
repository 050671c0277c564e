// Package cli is Perdure's command line as a library: a program that calls
// [Main] with its flows is a server, a worker and every command.
//
//	func main() {
//		cli.Main(perdure.NewFlow("triage", triage))
//	}
//
// [Run] also takes options: commands and routes of the program's own, a logger, an
// observer, and the options of the runtime and the server.
//
// Commands work on a server (--server URL) or directly on a store (--store URL); with a
// store, the API runs inside the command. The packages below cli/internal connect to
// either (link), format output for people (render) and hold the exit codes (exit).
package cli
