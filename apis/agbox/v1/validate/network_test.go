package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func TestNetwork(t *testing.T) {
	ports := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("10.0.0.1:%d/tcp", i+1))
		}
		return list
	}
	for _, tc := range []struct {
		name     string
		network  *agboxv1.NetworkSpec
		services bool
		want     string
	}{
		{"absent", nil, true, ""},
		{"an empty one is absent", &agboxv1.NetworkSpec{}, true, ""},
		{"open", &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"169.254.0.0/16", "host:2375/tcp"}}, true, ""},
		{"internet", &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{"10.0.0.0/8", "[fd00::1]:80-90/udp", "host:8080"}, Deny: []string{"1.1.1.1"}}, true, ""},
		{"internal", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"10.0.0.5:5432/tcp"}}, true, ""},
		{"none", &agboxv1.NetworkSpec{Mode: "none"}, false, ""},
		{"no mode", &agboxv1.NetworkSpec{Allow: []string{"10.0.0.1"}}, false, `network.mode is required in a network policy: write "internet", "internal", "none" or "open"`},
		{"another mode", &agboxv1.NetworkSpec{Mode: "off"}, false, `network.mode "off" is not known: write "open", "internet", "internal", "none"`},
		{"none with services", &agboxv1.NetworkSpec{Mode: "none"}, true, `network.mode "none" cuts the sandbox off from its services: write "internal"`},
		{"none with entries", &agboxv1.NetworkSpec{Mode: "none", Allow: []string{"10.0.0.1"}, Deny: []string{"10.0.0.1"}}, false,
			`network.allow has no effect in the mode "none": write "internal"; network.deny has no effect in the mode "none", which drops everything: leave it out`},
		{"open with allow", &agboxv1.NetworkSpec{Mode: "open", Allow: []string{"10.0.0.1"}}, false, `network.allow has no effect in the mode "open": write "internet" or "internal"`},
		{"a domain", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"10.0.0.1", "*.github.com:443"}}, false, ""},
		{"a denied domain", &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{"api.github.com"}}, false, ""},
		{"a denied domain with ports", &agboxv1.NetworkSpec{Mode: "internal", Deny: []string{"10.0.0.1", "api.github.com:443"}}, false,
			`network.deny[1] "api.github.com:443" names a domain with ports, and a denied name has no address at all: leave the ports out`},
		{"a domain in the mode internet", &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{"api.github.com"}}, false,
			`network.allow[0] "api.github.com" names a domain, which has no effect in this mode: write "internal", or leave it out`},
		{"a domain in the mode open", &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"api.github.com"}}, false,
			`network.deny[0] "api.github.com" names a domain, and the mode "open" answers for every name: write "internet"`},
		{"a name without a dot", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"db:5432"}}, false,
			`network.allow[0] "db:5432" is a name without a dot: write a domain like api.github.com, or host:PORT for the sandbox's host`},
		{"verified names", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"10.0.0.1/udp", "a.example:443"}, VerifyNames: true}, false, ""},
		{"no names to verify", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"10.0.0.1"}, VerifyNames: true}, false,
			`network.verify_names has no effect without the mode "internal" and names in allow: leave it out`},
		{"verified names in the mode internet", &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{"a.example"}, VerifyNames: true}, false,
			`network.verify_names has no effect without the mode "internal" and names in allow: leave it out`},
		{"datagrams with verified names", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"a.example", "a.example:443/udp"}, VerifyNames: true}, false,
			"network.allow[1] names a domain over UDP, where verify_names can verify no name: leave the entry out, or name addresses"},
		{"the host without a port", &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{"host"}}, false, `network.deny[0] "host" needs a port: write host:8080`},
		{"64 combinations", &agboxv1.NetworkSpec{Mode: "internet", Allow: ports(64)}, false, ""},
		{"65 combinations", &agboxv1.NetworkSpec{Mode: "internet", Allow: ports(65)}, false,
			"network.allow has 65 different combinations of ports and protocol; the limit is 64: use ranges of ports"},
		{"10000 entries", &agboxv1.NetworkSpec{Mode: "internet", Deny: slices.Repeat([]string{"10.0.0.1"}, 10000)}, false, ""},
		{"10001 entries", &agboxv1.NetworkSpec{Mode: "internet", Deny: slices.Repeat([]string{"x"}, 10001)}, false, "network.deny has 10001 entries; the limit is 10000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{Image: "a", Network: tc.network}
			if tc.services {
				spec.OptionalServices = []*agboxv1.ServiceSpec{healthy("db")}
			}
			if got := validate.Create(spec).Error(); got != tc.want {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
	long := &agboxv1.CreateSpec{Image: "a", Network: &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{strings.Repeat("\n", 5000)}}}
	if got := validate.Create(long).Error(); len(got) > 300 {
		t.Errorf("an error of %d bytes", len(got))
	}
}
