// Run buys what an invoice offers, if three people agree:
//
//	go run ./examples/procurement/run
//
// It stops at each question and says how to answer it, for example as --by manager;
// then start it again. If a person does not answer for a day, a deputy is asked; if
// the deputy does not answer either, that is a no. Everything is kept in
// procurement.db, and orders in orders.jsonl; remove procurement.db* to start over.
package main

import (
	"github.com/perdure/perdure/examples/internal/program"
	"github.com/perdure/perdure/examples/procurement"
)

func main() {
	program.Main(procurement.Flow(procurement.Options{Pace: program.Pace(), Supplier: procurement.FileSupplier("orders.jsonl")}), procurement.Invoice)
}
