package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/netrules"
)

func TestEgressPolicy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		network string
		noNet   bool // allow_internet_access: false
		want    string
	}{
		{"nothing", `{}`, false, ""},
		{"no internet", `{}`, true, "internal"},
		{"all denied", `{"denyOut": ["0.0.0.0/0"]}`, false, "internal"},
		{"some denied", `{"denyOut": ["8.8.8.8", "1.1.0.0/16"]}`, false, "internet -8.8.8.8/32 -1.1.0.0/16"},
		{"allowed beats denied", `{"denyOut": ["8.8.8.0/30"], "allowOut": ["8.8.8.1"]}`, false, "internet -8.8.8.2/31 -8.8.8.0/32"},
		{"all of it allowed", `{"denyOut": ["8.8.8.8"], "allowOut": ["8.8.0.0/16"]}`, false, "internet"},
		{"allowed alone", `{"allowOut": ["0.0.0.0/1", "128.0.0.0/1", "::/0"]}`, false, "internet"},
		{"one only", `{"allowOut": ["::/1", "0.0.0.0/0"], "denyOut": ["0.0.0.0/0"]}`, false, "internet"},
		{"a domain", `{"allowOut": ["example.com", "*.example.com", "8.8.8.8"]}`, false, "internal +example.com +*.example.com +8.8.8.8"},
		{"a domain, all denied", `{"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}`, false, "internal +example.com"},
		{"a domain, no internet", `{"allowOut": ["example.com"], "denyOut": ["8.8.8.8"]}`, true, "internal +example.com"},
		{"a domain, some denied", `{"allowOut": ["example.com"], "denyOut": ["8.8.8.8"]}`, false, "501"},
		{"a domain and a block", `{"allowOut": ["example.com", "8.8.8.0/24"]}`, false, "501"},
		{"a domain and a private address", `{"allowOut": ["example.com", "10.0.0.1"]}`, false, "400"},
		{"a denied domain", `{"denyOut": ["example.com"]}`, false, "501"},
		{"the host", `{"allowOut": ["host:80"]}`, false, "400"},
		{"rules", `{"rules": {"example.com": []}}`, false, "501"},
		{"no rules", `{"rules": {}}`, false, ""},
		{"nonsense", `{"allowOut": "8.8.8.8"}`, false, "400"},
		{"private traffic", `{"allowPublicTraffic": 3}`, false, "400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal([]byte(tt.network), &fields); err != nil {
				t.Fatal(err)
			}
			out, _, err := parseNetwork(fields)
			if yes := !tt.noNet; tt.noNet {
				out.InternetAccess = &yes
			}
			var n *agboxv1.NetworkSpec
			if err == nil {
				n, err = out.policy()
			}
			got := strings.Join(slices.Concat([]string{n.GetMode()}, prefixed("+", n.GetAllow()), prefixed("-", n.GetDeny())), " ")
			if err != nil {
				got = map[int]string{http.StatusBadRequest: "400", http.StatusNotImplemented: "501"}[failureOf(err).Code]
			}
			if got != tt.want {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
			if err := validate.Create(&agboxv1.CreateSpec{Image: "x", Network: n}).Err(); err == nil != (tt.want != "400" && tt.want != "501" || n == nil) {
				t.Error(err)
			}
		})
	}
}

func prefixed(sign string, entries []string) (out []string) {
	for _, e := range entries {
		out = append(out, sign+e)
	}
	return out
}

// What a client allows is open, all else is closed, and what is private stays closed.
func TestEgressAllowsOnlyWhatItNames(t *testing.T) {
	n, err := egress{AllowOut: []string{"8.8.8.8", "10.0.0.0/8", "1.1.1.0/24"}}.policy()
	if err != nil {
		t.Fatal(err)
	}
	r, err := netrules.Make(n.GetMode(), n, netrules.Facts{Bridge: "br-x"})
	if err != nil {
		t.Fatal(err)
	}
	for address, open := range map[string]bool{
		"8.8.8.8": true, "8.8.8.9": false, "8.8.8.7": false, "1.1.1.255": true, "1.1.2.0": false, "10.0.0.1": false, "169.254.169.254": false, "2606:4700::1111": false,
	} {
		a := netip.MustParseAddr(address)
		dropped := slices.ContainsFunc(r.From, func(r netrules.Rule) bool {
			return r.Drop && slices.ContainsFunc(r.To, func(to netrules.Range) bool { return to.First.Compare(a) <= 0 && a.Compare(to.Last) <= 0 })
		})
		if dropped == open {
			t.Errorf("%s is open: %t", address, !dropped)
		}
	}
}
