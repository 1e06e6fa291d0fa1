package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestTheRowOfADestination(t *testing.T) {
	now := time.Now()
	for want, d := range map[string]*agboxv1.NetworkDestination{
		"denied|10.0.0.9|443/tcp|-|3|5s":     {Denied: true, Address: "10.0.0.9", Protocol: "tcp", Port: 443, Count: 3},
		"denied|10.0.0.1 (host)|icmp|-|1|5s": {Denied: true, Address: "10.0.0.1", Protocol: "icmp", Host: true, Count: 1},
		"denied|-|-|evil.example|2|5s":       {Denied: true, Names: []string{"evil.example"}, Count: 2},
		"reached|1.1.1.1|53/udp|a b|1|5s":    {Address: "1.1.1.1", Protocol: "udp", Port: 53, Names: []string{"a", "b"}, Count: 1},
	} {
		d.LastAt = timestamppb.New(now.Add(-5 * time.Second))
		if got := strings.Join(destinationRow(d, now), "|"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLearnedPolicy(t *testing.T) {
	list := []*agboxv1.NetworkDestination{
		{Denied: true, Address: "10.0.0.9", Protocol: "tcp", Port: 443},
		{Denied: true, Address: "1.1.1.1", Protocol: "tcp", Port: 443},
		{Denied: true, Names: []string{"evil.example"}},
		{Denied: true, Names: []string{"x\x1b[31m\nallow"}},
		{Address: "10.213.0.1", Protocol: "tcp", Port: 8080, Host: true},
		{Address: "1.1.1.1", Protocol: "tcp", Port: 443},
		{Address: "2606:4700::1111", Protocol: "udp", Port: 443},
		{Address: "140.82.121.6", Protocol: "tcp", Port: 443, Names: []string{"api.github.com", "github.com"}},
		{Address: "140.82.121.7", Protocol: "tcp", Port: 443, Names: []string{"github.com"}},
		{Address: "9.9.9.9", Protocol: "icmp"},
	}
	want := `network:
  mode: internal
  allow:
  - "1.1.1.1:443/tcp"
  - "[2606:4700::1111]:443/udp"
  - "api.github.com:443/tcp"
  - "github.com:443/tcp"
  - "host:8080/tcp"
  # denied:
  # - "10.0.0.9:443/tcp"
  # - "evil.example"
  # no entry can name:
  # - "9.9.9.9/icmp"
  # - "x\x1b[31m\nallow"
`
	var out strings.Builder
	printLearned(&out, list)
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	printLearned(&out, slices.Clip(list[:0]))
	if out.String() != "network:\n  mode: internal\n" {
		t.Errorf("of nothing: %q", out.String())
	}
}
