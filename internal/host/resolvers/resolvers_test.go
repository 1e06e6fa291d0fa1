package resolvers_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agbox/agbox/internal/host/resolvers"
)

func TestRead(t *testing.T) {
	const fallback = "8.8.8.8"
	for _, tt := range []struct{ name, main, systemd, first string }{
		{"a server", "# comment\nsearch example\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n", "", "10.0.0.2"},
		{"loopback and another", "nameserver 127.0.0.1\nnameserver 10.0.0.3\n", "", "10.0.0.3"},
		{"a zone", "nameserver fe80::1%eth0\n", "", "fe80::1"},
		{"systemd-resolved", "nameserver 127.0.0.53\n", "nameserver 10.1.1.1\n", "10.1.1.1"},
		{"systemd-resolved without servers", "nameserver 127.0.0.53\n", "", fallback},
		{"loopback only", "nameserver 127.0.0.1\n", "nameserver 10.1.1.1\n", fallback},
		{"nonsense", "nameserver\nnameserver x\n", "", fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			f := resolvers.Files{Main: filepath.Join(dir, "main"), Systemd: filepath.Join(dir, "systemd")}
			for path, text := range map[string]string{f.Main: tt.main, f.Systemd: tt.systemd} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := f.Read()
			if len(got) == 0 || got[0] != netip.MustParseAddr(tt.first) || slices.ContainsFunc(got, netip.Addr.IsLoopback) {
				t.Error(got)
			}
		})
	}
	if got := (resolvers.Files{}).Read(); len(got) != 4 {
		t.Error(got)
	}
}

func TestForContainers(t *testing.T) {
	addr := netip.MustParseAddr
	for _, tt := range []struct{ servers, want []netip.Addr }{
		{[]netip.Addr{addr("127.0.0.53"), addr("10.0.0.1"), addr("fd00::1"), addr("169.254.1.1")}, []netip.Addr{addr("10.0.0.1")}},
		{[]netip.Addr{addr("fe80::1"), addr("::1")}, []netip.Addr{addr("8.8.8.8"), addr("8.8.4.4")}},
		{nil, []netip.Addr{addr("8.8.8.8"), addr("8.8.4.4")}},
	} {
		if got := resolvers.ForContainers(tt.servers); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v", tt.servers, got)
		}
	}
}
