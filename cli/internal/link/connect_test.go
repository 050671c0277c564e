package link

import "testing"

func TestAddressesGetAScheme(t *testing.T) {
	for given, want := range map[string]string{
		"localhost:7373": "http://localhost:7373", "127.0.0.1:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1",
		"agents.example.com:443": "https://agents.example.com:443", "nonsense": "nonsense", "http://x:1": "http://x:1", "https://x/y:1": "https://x/y:1",
	} {
		if got := withScheme(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
}
