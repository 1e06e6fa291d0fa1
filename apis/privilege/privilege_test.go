package privilege_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/apis/privilege"
)

func TestCapabilitiesHaveTheKernelsNumbers(t *testing.T) {
	for name, want := range map[string]int{
		"CHOWN": unix.CAP_CHOWN, "SETPCAP": unix.CAP_SETPCAP, "NET_RAW": unix.CAP_NET_RAW, "SYS_PTRACE": unix.CAP_SYS_PTRACE, "SYS_ADMIN": unix.CAP_SYS_ADMIN,
		"MKNOD": unix.CAP_MKNOD, "SETFCAP": unix.CAP_SETFCAP, "SYSLOG": unix.CAP_SYSLOG, "AUDIT_READ": unix.CAP_AUDIT_READ, "CHECKPOINT_RESTORE": unix.CAP_LAST_CAP,
		"CAP_CHOWN": -1, "chown": -1, "ALL": -1, "": -1,
	} {
		if got := privilege.Capability(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
