package credentials_test

import (
	"encoding/json"
	"fmt"

	"github.com/perdure/perdure/agent/credentials"
)

// A redacted text does not show where it is printed.
func ExampleRedacted() {
	config := struct {
		URL   string
		Token credentials.Redacted
	}{"https://example.com", credentials.Redact("hunter2")}
	raw, err := json.Marshal(config)
	fmt.Println(string(raw), err)
	fmt.Printf("%+v\n", config)
	fmt.Println(len(config.Token.Reveal()))
	// Output:
	// {"URL":"https://example.com","Token":"[redacted]"} <nil>
	// {URL:https://example.com Token:[redacted]}
	// 7
}
