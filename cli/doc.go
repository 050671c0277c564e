// Package cli is Perdure's command line as a library: a program that calls
// [Main] with its flows is a server, a worker and every command.
//
//	func main() {
//		cli.Main(perdure.NewFlow("triage", triage))
//	}
//
// Commands work on a server (--server URL) or directly on a store (--store
// URL): then the API runs inside the command.
package cli
