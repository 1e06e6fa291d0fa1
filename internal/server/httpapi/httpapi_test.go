package httpapi

import "testing"

func TestReadinessSaysWhatIsNotReady(t *testing.T) {
	body, ready := readiness([]Check{{Name: "store"}, {Name: "engine", Problem: "it is away"}})
	if want := "[+]store ok\n[-]engine: it is away\nnot ready\n"; body != want || ready {
		t.Errorf("got %t, %q", ready, body)
	}
	body, ready = readiness([]Check{{Name: "store", Warning: "one record"}, {Name: "engine"}})
	if want := "[!]store: one record\n[+]engine ok\nready\n"; body != want || !ready {
		t.Errorf("got %t, %q", ready, body)
	}
}
