// Run buys what an invoice offers, and asks three people in the terminal:
//
//	go run ./examples/procurement/run
//
// Kill it whenever you like and start it again: it goes on where it was. Do not
// answer for -day, and a deputy is asked; do not answer again, and that is a no.
// All that it knows is in procurement.db, and its orders are in orders.jsonl;
// remove procurement.db* to begin anew.
package main

import (
	"flag"
	"time"

	"github.com/perdure/perdure/examples/internal/terminal"
	"github.com/perdure/perdure/examples/procurement"
)

func main() {
	p := terminal.Flags("procurement")
	day := flag.Duration("day", 24*time.Hour, "how long each person has to answer")
	pace := flag.Duration("pace", 80*time.Millisecond, "between two pieces of a reply")
	flag.Parse()
	p.Input = procurement.Invoice
	p.Main(procurement.Flow(procurement.Options{Pace: *pace, Patience: *day, Supplier: procurement.FileSupplier("orders.jsonl")}))
}
