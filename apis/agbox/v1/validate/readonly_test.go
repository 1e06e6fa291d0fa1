package validate_test

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func TestReadOnlyRoot(t *testing.T) {
	const all = "/home, /root, /run, /tmp, /var/tmp, /workspace"
	for _, tc := range []struct {
		name   string
		change func(*agboxv1.CreateSpec)
		want   string
	}{
		{"copies and secrets in writable directories", func(s *agboxv1.CreateSpec) {
			s.Copies = []*agboxv1.CopySpec{{Source: "/a", Target: "/workspace"}, {Source: "/a", Target: "/home/agbox/a"}}
			s.Secrets = []*agboxv1.SecretSpec{{Name: "a", File: "/a", Target: "/run/secrets/a"}, {Name: "b", File: "/b"}}
		}, ""},
		{"elsewhere", func(s *agboxv1.CreateSpec) {
			s.Copies = []*agboxv1.CopySpec{{Source: "/a", Target: "/workspaces"}, {Source: "/a", Target: "/srv"}}
		}, "copies[0].target: below " + all + "; copies[1].target: below " + all},
		{"a mount in place of a writable directory", func(s *agboxv1.CreateSpec) {
			s.Mounts = []*agboxv1.MountSpec{mount("/a", "/home"), mount("/a", "/workspace/a")}
			s.Copies = []*agboxv1.CopySpec{{Source: "/a", Target: "/srv"}}
		}, "copies[0].target: below /root, /run, /tmp, /var/tmp, /workspace"},
		{"a limit of the writable layer", func(s *agboxv1.CreateSpec) { s.DiskLimit = "1g" }, "disk_limit: can't be honoured"},
		{"a writable root", func(s *agboxv1.CreateSpec) {
			s.Security, s.DiskLimit, s.Copies = nil, "1g", []*agboxv1.CopySpec{{Source: "/a", Target: "/srv"}}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := &agboxv1.CreateSpec{Image: "a", Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}}
			tc.change(spec)
			check(t, validate.Create(spec), tc.want)
		})
	}
}

func TestReadOnlyRootRefusesSecretsElsewhere(t *testing.T) {
	errs := validate.Create(&agboxv1.CreateSpec{
		Image: "a", Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}, Secrets: []*agboxv1.SecretSpec{{Name: "a", File: "/a", Target: "/etc/a"}},
	})
	if len(errs) != 1 || errs[0].Field != "secrets[a].target" {
		t.Errorf("%v", errs)
	}
}

// What the spec mounts is not covered by a volume, nor is anything made inside of it.
func TestWritableRootsLeaveOutWhatIsMounted(t *testing.T) {
	spec := &agboxv1.CreateSpec{
		Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}, Mounts: []*agboxv1.MountSpec{mount("/a", "/var/tmp"), mount("/a", "/home/agbox")},
		Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/workspace"}},
	}
	if got, want := validate.WritableRoots(spec), []string{"/home", "/root", "/run", "/tmp"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	spec.Security = nil
	if got := validate.WritableRoots(spec); got != nil {
		t.Errorf("with a writable root: %q", got)
	}
}
