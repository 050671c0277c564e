// Openapi prints the OpenAPI document of the API, from which the types of the
// console are generated.
package main

import (
	"log"
	"os"

	"github.com/perdure/perdure/api"
)

func main() {
	doc, err := api.OpenAPI("")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(doc); err != nil {
		log.Fatal(err)
	}
}
