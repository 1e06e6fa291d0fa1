package profile_test

import (
	"reflect"
	"slices"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/dockerx"
)

// A sandbox that was accepted before there were profiles keeps what the engine gives by default.
func TestNoProfileIsTheEnginesDefault(t *testing.T) {
	for what, s := range map[string]dockerx.Security{"primary": profile.Primary("", nil), "service": profile.Service("")} {
		if s.NoNewPrivileges || s.CapAdd != nil || s.CapDrop != nil {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

// A profile of a later release is not taken for none.
func TestAnUnknownProfileIsTheStrictest(t *testing.T) {
	if s := profile.Service("paranoid"); !s.NoNewPrivileges || !slices.Equal(s.CapDrop, []string{"ALL"}) {
		t.Errorf("%+v", s)
	}
}

func TestASpecLoosensAProfile(t *testing.T) {
	no, yes := false, true
	for name, tc := range map[string]struct {
		profile string
		spec    *agboxv1.SecuritySpec
		want    dockerx.Security
	}{
		"standard": {"standard", nil, dockerx.Security{CapDrop: []string{"MKNOD", "NET_RAW"}}},
		"standard, loosened": {
			"standard", &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"NET_RAW", "SYS_PTRACE"}, Seccomp: "unconfined", NoNewPrivileges: &yes},
			dockerx.Security{CapDrop: []string{"MKNOD"}, CapAdd: []string{"NET_RAW", "SYS_PTRACE"}, Unconfined: true, NoNewPrivileges: true},
		},
		"hardened, loosened": {
			"hardened", &agboxv1.SecuritySpec{CapabilitiesAdd: []string{"CHOWN", "NET_RAW"}, NoNewPrivileges: &no, ReadOnlyRoot: true},
			dockerx.Security{
				CapDrop: []string{"ALL"}, CapAdd: []string{"CHOWN", "DAC_OVERRIDE", "KILL", "NET_RAW", "SETGID", "SETPCAP", "SETUID"}, ReadOnlyRoot: true,
			},
		},
	} {
		if got := profile.Primary(tc.profile, tc.spec); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	if again := profile.Primary("standard", nil); len(again.CapDrop) != 2 {
		t.Errorf("a loosened sandbox has changed the profile: %+v", again)
	}
}
