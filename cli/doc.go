// Package cli is Perdure's command line as a library: a program that calls
// [Main] with its flows is a server, a worker and every command.
//
//	func main() {
//		cli.Main(perdure.NewFlow("triage", triage))
//	}
//
// [Run] takes options too: a logger, an observer, routes of the program's own
// beside the API, and the options of the runtime and the server.
//
// Commands work on a server (--server URL) or directly on a store (--store
// URL): then the API runs inside the command.
package cli
