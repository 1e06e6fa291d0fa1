package dnsfilter

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestAskedNames(t *testing.T) {
	var n askedNames
	now := time.Now()
	if _, changed := n.take(now); changed {
		t.Error("nothing was asked")
	}
	addrs := func(first, count int) (list []netip.Addr) {
		for i := range count {
			list = append(list, netip.AddrFrom4([4]byte{203, 0, 113, byte(first + i)}))
		}
		return list
	}
	n.add("a.example", false, addrs(0, 10), now.Add(-time.Minute))
	n.add("a.example", false, addrs(5, 20), now)
	n.add("a.example", true, nil, now)
	n.add("old.example", true, nil, now.Add(-2*time.Hour))
	list, changed := n.take(now)
	if !changed || len(list) != 2 || list[0].Name != "a.example" || list[1].Name != "a.example" {
		t.Fatalf("%v, %v", list, changed)
	}
	answered := list[slices.IndexFunc(list, func(a Asked) bool { return !a.Refused })]
	if answered.Count != 2 || !answered.Last.Equal(now) || !slices.Equal(answered.Addrs, addrs(9, maxAskedAddrs)) {
		t.Errorf("answered: %+v", answered)
	}
	if _, changed := n.take(now); changed {
		t.Error("nothing was asked since")
	}
	for i := range 2 * maxAsked { // a flood takes no room of answered names
		n.add(fmt.Sprintf("%d.flood.example", i), true, nil, now)
	}
	n.add("b.example", false, nil, now)
	if list, _ := n.take(now); len(list) != maxAsked+2 {
		t.Errorf("%d names", len(list))
	}
	n.add("late.example", true, nil, now.Add(2*time.Hour)) // the others have made room
	if list, _ := n.take(now.Add(2 * time.Hour)); len(list) != 1 || list[0].Name != "late.example" {
		t.Errorf("%v", list)
	}
}

func TestAskedNamesOutliveTheFilter(t *testing.T) {
	d := Dir(t.TempDir())
	if list, err := d.Asked("br-1"); err != nil || len(list) > 0 {
		t.Fatal(list, err)
	}
	s := &sandbox{f: &filter{Config: Config{Dir: d}}, bridge: "br-1"}
	s.asked.add("a.example", false, []netip.Addr{netip.MustParseAddr("1.1.1.1")}, time.Now())
	s.writeAsked()
	list, err := d.Asked("br-1")
	if err != nil || len(list) != 1 || list[0].Count != 1 || list[0].Addrs[0] != netip.MustParseAddr("1.1.1.1") {
		t.Fatal(list, err)
	}
	next := &sandbox{f: s.f, bridge: "br-1"}
	next.asked.load(list)
	next.asked.add("a.example", false, nil, time.Now())
	next.writeAsked()
	if list, err := d.Asked("br-1"); err != nil || len(list) != 1 || list[0].Count != 2 || len(list[0].Addrs) != 1 {
		t.Fatal(list, err)
	}
	old, err := json.Marshal([]Asked{{Name: "old.example", Last: time.Now().Add(-2 * time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.replace("br-2"+askedSuffix, old); err != nil {
		t.Fatal(err)
	}
	if list, err := d.Asked("br-2"); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if err := d.Remove("br-1"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.Asked("br-1"); err != nil || len(list) > 0 {
		t.Error("left after the removal:", list, err)
	}
}
