package judge_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/judge"
	"github.com/agbox/agbox/internal/netrules"
)

func reached(address string) attack.Success {
	return attack.Success{What: address, To: netip.MustParseAddrPort(address), Protocol: "tcp"}
}

func entry(t *testing.T, text string) netentry.Entry {
	t.Helper()
	e, err := netentry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var limited = judge.Spec{Pids: 100, MemoryBytes: 4096, DiskBytes: 1 << 20}

func TestJudge(t *testing.T) {
	internet := judge.Spec{Mode: netrules.Internet, Servers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for name, tt := range map[string]struct {
		spec    judge.Spec
		check   string
		result  *attack.Result
		verdict string
	}{
		"nothing succeeded":                    {internet, attack.Host, &attack.Result{Tried: 9}, judge.Held},
		"nothing was tried":                    {internet, attack.Sandbox, &attack.Result{}, judge.Untried},
		"there is no result":                   {internet, attack.Mount, nil, judge.Hole},
		"the host":                             {internet, attack.Host, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.9:80")}}, judge.Hole},
		"the host, open":                       {judge.Spec{Mode: netrules.Open}, attack.Host, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.9:80")}}, judge.Allowed},
		"a DNS server":                         {internet, attack.LAN, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.1:53")}}, judge.Allowed},
		"another port of a DNS server":         {internet, attack.LAN, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.1:22")}}, judge.Hole},
		"a DNS server without the internet":    {judge.Spec{Mode: netrules.Internal, Servers: internet.Servers}, attack.LAN, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.1:53")}}, judge.Hole},
		"names of the internet":                {internet, attack.DNS, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.1:53")}}, judge.Allowed},
		"names of the internet, internal":      {judge.Spec{Mode: netrules.Internal}, attack.DNS, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.1:53")}}, judge.Hole},
		"a setuid program":                     {internet, attack.Setuid, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"a setuid program, hardened":           {judge.Spec{Hardened: true}, attack.Setuid, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"capabilities of root":                 {judge.Spec{Root: true}, attack.Capabilities, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"capabilities of root, hardened":       {judge.Spec{Root: true, Hardened: true}, attack.Capabilities, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"capabilities of a user":               {judge.Spec{}, attack.Capabilities, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"an added capability":                  {judge.Spec{Hardened: true, Loosened: []string{"NET_RAW"}}, attack.Capabilities, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"packets, with NET_RAW":                {judge.Spec{Hardened: true, Loosened: []string{"NET_RAW"}}, attack.Packets, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"packets, with another capability":     {judge.Spec{Hardened: true, Loosened: []string{"KILL"}}, attack.Packets, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a mount, with NET_RAW":                {judge.Spec{Loosened: []string{"NET_RAW", "no_new_privileges=false"}}, attack.Mount, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a mount, with SYS_ADMIN":              {judge.Spec{Loosened: []string{"SYS_ADMIN"}}, attack.Mount, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"system calls, without a filter":       {judge.Spec{Loosened: []string{"seccomp=unconfined"}}, attack.Syscalls, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"system calls, with a capability":      {judge.Spec{Loosened: []string{"SYS_ADMIN"}}, attack.Syscalls, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a mount":                              {judge.Spec{Mode: netrules.Open, Root: true}, attack.Mount, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a mount in a kernel of its own":       {judge.Spec{Runtime: "runsc"}, attack.Mount, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"the engine, from another kernel":      {judge.Spec{Runtime: "runsc"}, attack.Engine, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a port of the host that allow names":  {judge.Spec{Mode: netrules.Internet, Allow: []netentry.Entry{entry(t, "host:80/tcp")}}, attack.Host, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.9:80")}}, judge.Allowed},
		"another port of the host":             {judge.Spec{Mode: netrules.Internet, Allow: []netentry.Entry{entry(t, "host:80/tcp")}}, attack.Host, &attack.Result{Tried: 2, Done: []attack.Success{reached("10.0.0.9:80"), reached("10.0.0.9:22")}}, judge.Hole},
		"the host by a block, which is closed": {judge.Spec{Mode: netrules.Internet, Allow: []netentry.Entry{entry(t, "10.0.0.0/8")}}, attack.Host, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.9:80")}}, judge.Hole},
		"the router by a block":                {judge.Spec{Mode: netrules.Internet, Allow: []netentry.Entry{entry(t, "10.0.0.0/8:80-90")}}, attack.LAN, &attack.Result{Tried: 1, Done: []attack.Success{reached("10.0.0.9:80")}}, judge.Allowed},

		"no limit of processes":               {internet, attack.Pids, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a limit of processes":                {limited, attack.Pids, &attack.Result{Tried: 1, Limit: 100}, judge.Held},
		"a higher limit of processes":         {limited, attack.Pids, &attack.Result{Tried: 1, Limit: 101}, judge.Hole},
		"no limit of memory":                  {internet, attack.MemoryLimit, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
		"a limit of memory":                   {limited, attack.MemoryLimit, &attack.Result{Tried: 1, Limit: 4096}, judge.Held},
		"a higher limit of memory":            {limited, attack.MemoryLimit, &attack.Result{Tried: 1, Limit: 8192}, judge.Hole},
		"no limit of memory, but in the spec": {limited, attack.MemoryLimit, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"no group shows a limit of memory":    {limited, attack.MemoryLimit, &attack.Result{}, judge.Untried},
		"no limit of the disk":                {internet, attack.DiskLimit, &attack.Result{Tried: 1, Limit: 1 << 40}, judge.Allowed},
		"a limit of the disk":                 {limited, attack.DiskLimit, &attack.Result{Tried: 1, Limit: 1 << 20}, judge.Held},
		"a limit of the disk that is unseen":  {limited, attack.DiskLimit, &attack.Result{Tried: 1, Limit: 1 << 40}, judge.Untried},
		"a limit of the disk that is watched": {judge.Spec{DiskBytes: 1 << 20, DiskWatched: true}, attack.DiskLimit, &attack.Result{Tried: 1, Limit: 1 << 40}, judge.Untried},
		"a flood of the disk that succeeds":   {limited, attack.DiskLimit, &attack.Result{Tried: 2, Limit: 1 << 40, Done: []attack.Success{{What: "x"}}}, judge.Hole},
		"a flood of the disk that is refused": {limited, attack.DiskLimit, &attack.Result{Tried: 2, Limit: 1 << 20, Why: "refused"}, judge.Held},
		"a flood of memory that is refused":   {limited, attack.MemoryLimit, &attack.Result{Tried: 2, Limit: 4096, Why: "refused"}, judge.Held},
		"limits, from another kernel":         {judge.Spec{Runtime: "runsc"}, attack.Pids, &attack.Result{Tried: 1, Done: []attack.Success{{What: "x"}}}, judge.Allowed},
	} {
		var results []attack.Result
		if tt.result != nil {
			tt.result.Check = tt.check
			results = append(results, *tt.result)
		}
		for _, row := range judge.Judge(tt.spec, results) {
			if row.Check == tt.check && row.Verdict != tt.verdict {
				t.Errorf("%s: %s, %s", name, row.Verdict, row.Why)
			}
		}
	}
}

// Without a limit, or where a limit that is reached harms the sandbox, nothing is flooded, and the row says so.
func TestWhatIsFlooded(t *testing.T) {
	for name, tt := range map[string]struct {
		spec   judge.Spec
		floods string
		not    map[string]string
	}{
		"without limits": {judge.Spec{}, "--flood=pids:0", map[string]string{attack.MemoryLimit: "there is no limit", attack.DiskLimit: "there is no limit"}},
		"with limits":    {limited, "--flood=pids:100 --flood=memory_limit:4096 --flood=disk_limit:1048576", nil},
		"with a limit that is watched": {
			judge.Spec{DiskBytes: 1, DiskWatched: true}, "--flood=pids:0",
			map[string]string{attack.MemoryLimit: "there is no limit", attack.DiskLimit: "agboxd measures"},
		},
		"with high limits": {
			judge.Spec{Pids: 9000, MemoryBytes: 4 << 30, DiskBytes: 2 << 30}, "",
			map[string]string{attack.Pids: "above 8192", attack.MemoryLimit: "above 2GiB", attack.DiskLimit: "above 1GiB"},
		},
		"with another kernel": {
			judge.Spec{Runtime: "runsc", Pids: 100}, "", map[string]string{attack.Pids: "runsc", attack.MemoryLimit: "runsc", attack.DiskLimit: "runsc"},
		},
	} {
		var floods []string
		for _, f := range tt.spec.Floods() {
			floods = append(floods, f.String())
			if got, ok, err := attack.ParseFlood(f.String()); got != f || !ok || err != nil {
				t.Errorf("%s: %v becomes %v, %t, %v", name, f, got, ok, err)
			}
		}
		if got := strings.Join(floods, " "); got != tt.floods {
			t.Errorf("%s: %s, not %s", name, got, tt.floods)
		}
		tt.spec.Flooded = true
		var results []attack.Result
		for _, check := range []string{attack.Pids, attack.MemoryLimit, attack.DiskLimit} {
			results = append(results, attack.Result{Check: check, Tried: 1, Limit: 1})
		}
		for _, row := range judge.Judge(tt.spec, results) {
			if want, ok := tt.not[row.Check]; strings.Contains(row.Why, "not flooded") != ok || !strings.Contains(row.Why, want) {
				t.Errorf("%s: %s: %s", name, row.Check, row.Why)
			}
		}
	}
}

// A shim of an earlier release does not try what was added: that is no hole.
func TestAnOlderShimLacksTheLimits(t *testing.T) {
	for _, row := range judge.Judge(limited, []attack.Result{{Check: attack.Pids, Tried: 1}}) {
		if row.Check == attack.MemoryLimit && row.Verdict != judge.Untried || row.Check == attack.Mount && row.Verdict != judge.Hole {
			t.Errorf("%+v", row)
		}
	}
}

// Only holes that the spec does not allow are named: of each address one port, which answers.
func TestAHoleIsNamed(t *testing.T) {
	r := attack.Result{Check: attack.Host, Tried: 20}
	for _, port := range []string{"80", "1", "2", "3", "4", "5", "6", "7"} {
		r.Done = append(r.Done, reached("10.0.0.9:"+port))
	}
	spec := judge.Spec{Mode: netrules.Internal, Allow: []netentry.Entry{entry(t, "host:80")}}
	r.Done = append(r.Done, reached("10.0.0.7:7"), attack.Success{What: "a"}, attack.Success{What: "b"})
	r.Done[3].Answers = true
	want := "10.0.0.9:3 and 6 more ports, 10.0.0.7:7, a, b"
	if why := judge.Judge(spec, []attack.Result{r})[0].Why; why != want {
		t.Errorf("%s, want %s", why, want)
	}
}

// The page about security has a row for each check, in the same order and words.
func TestTheSecurityPageHasEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 8 && strings.HasPrefix(cells[1], " `") {
			rows = append(rows, strings.Trim(cells[1], " `")+": "+strings.TrimSpace(cells[2]))
		}
	}
	if len(rows) != len(judge.Checks) {
		t.Fatalf("the page has %d rows, of %d checks", len(rows), len(judge.Checks))
	}
	for i, c := range judge.Checks {
		if !strings.HasPrefix(rows[i], c.Name+": "+c.What) {
			t.Errorf("row %d is %q, not %s: %s", i, rows[i], c.Name, c.What)
		}
	}
}
