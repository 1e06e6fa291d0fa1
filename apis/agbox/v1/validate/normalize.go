package validate

import (
	"strings"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Normalize returns a copy of spec in the one form that is stored and compared: paths without double or final slashes
// and without "." parts, the protocol of each port written out, and no security that says nothing. Nothing else is filled in. ".." parts stay, for
// Create to refuse: behind a symbolic link they lead elsewhere than they seem to. nil gives nil.
func Normalize(spec *agboxv1.CreateSpec) *agboxv1.CreateSpec {
	out := proto.CloneOf(spec)
	for _, m := range out.GetMounts() {
		tidy(&m.Source)
		tidy(&m.Target)
	}
	for _, c := range out.GetCopies() {
		tidy(&c.Source)
		tidy(&c.Target)
	}
	if out != nil {
		tidy(&out.WorkingDir)
		if proto.Size(out.GetSecurity()) == 0 { // one that says nothing
			out.Security = nil
		}
	}
	writeProtocols(out.GetPorts())
	for _, list := range [][]*agboxv1.ServiceSpec{out.GetRequiredServices(), out.GetOptionalServices()} {
		for _, s := range list {
			tidy(&s.WorkingDir)
			writeProtocols(s.GetPorts())
		}
	}
	return out
}

func writeProtocols(ports []*agboxv1.PortSpec) {
	for _, p := range ports {
		if p.GetProtocol() == "" {
			p.Protocol = "tcp"
		}
	}
}

// tidy removes what has no meaning from an absolute path.
func tidy(p *string) {
	if !strings.HasPrefix(*p, "/") {
		return
	}
	var parts []string
	for part := range strings.SplitSeq(*p, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	*p = "/" + strings.Join(parts, "/")
}
