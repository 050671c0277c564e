// Package cluster makes a program with flows a highly available Perdure without a
// database: three or five copies of the program, on as many machines, each keep all data
// in a NATS server inside the program. Its commands are those of package cli, which it
// may import besides the packages of stores.
//
//	func main() { cluster.Main(clerk, research) }
//
// On each machine:
//
//	program serve --cluster agents --join 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374 --dir /var/lib/agents --cluster-secret-file secret
//
// Other commands use the store of a node on the same machine, with --store cluster:DIR.
// See docs/cli.md for how nodes are replaced, and ADR 0037 for how they work.
package cluster
