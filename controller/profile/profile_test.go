package profile_test

import (
	"slices"
	"testing"

	"github.com/agbox/agbox/controller/profile"
	"github.com/agbox/agbox/dockerx"
)

// A sandbox that was accepted before there were profiles keeps what the engine gives by default.
func TestNoProfileIsTheEnginesDefault(t *testing.T) {
	for what, s := range map[string]dockerx.Security{"primary": profile.Primary(""), "service": profile.Service("")} {
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
