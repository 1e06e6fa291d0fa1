package cli

import "testing"

func TestBaseURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:3000": "http://127.0.0.1:3000", "https://127.0.0.1:3000": "https://127.0.0.1:3000", "0.0.0.0:3000": "http://localhost:3000",
		"https://[::]:443": "https://localhost:443", "[::1]:3000": "http://[::1]:3000",
	} {
		if got := baseURL(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
