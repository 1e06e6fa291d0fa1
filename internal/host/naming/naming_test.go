package naming

import (
	"strings"
	"testing"
)

func TestPlainIDsKeepTheirNames(t *testing.T) {
	for got, want := range map[string]string{
		Network("abc-1"):        "agbox-net-abc-1",
		Primary("ABC-1"):        "agbox-primary-ABC-1",
		Service("abc-1", "db"):  "agbox-svc-abc-1-db",
		Service("abc-1", "D.b"): "agbox-svc-abc-1-D.b",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNamesNeverCollide(t *testing.T) {
	names := map[string]string{}
	add := func(name, of string) {
		if other, taken := names[name]; taken {
			t.Errorf("%s is the name of both %s and %s", name, of, other)
		}
		names[name] = of
	}
	for _, id := range []string{"a-b", "a_b", "a-b-c", "a_b-c", "a-b_c", "a_b_c"} {
		add(Network(id), "network "+id)
		add(Primary(id), "primary "+id)
		for _, svc := range []string{"c", "b-c", "b_c", "b.c", "B", "d", "c-d", "c_d"} {
			add(Service(id, svc), "service "+id+" "+svc)
		}
	}
}

func TestUnderscoreNamesCarryADigest(t *testing.T) {
	name := Primary("a_b")
	if !strings.HasPrefix(name, "agbox-primary-a-b_") || len(name) != len("agbox-primary-a-b_")+12 {
		t.Errorf("unexpected name %s", name)
	}
}
