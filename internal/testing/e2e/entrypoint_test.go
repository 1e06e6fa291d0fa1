//go:build docker

package e2e

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// makesAgbox is an ENTRYPOINT of the images of older clients: it makes the user agbox with the numbers of the environment, as root, and then
// executes its arguments.
const makesAgbox = `#!/bin/sh
set -e
if ! grep -q ^agbox: /etc/passwd; then
	echo "agbox:x:$HOST_UID:$HOST_GID:made by the entrypoint:/home/agbox:/bin/sh" >> /etc/passwd
	echo "agbox:x:$HOST_GID:" >> /etc/group
fi
mkdir -p /home/agbox/.settings
id -u >> /home/agbox/.settings/runs
chown -R agbox /home/agbox
sleep 1
echo set up
exec "$@"
`

const entrypoint = "\nCOPY entry.sh /entry.sh\nENTRYPOINT [\"/entry.sh\"]\n"

func TestAnEntrypointMakesTheUserOfCommands(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nhost_uid = 1234\nhost_gid = 1235\n")
	id := d.create(&agboxv1.CreateSpec{
		Image: builtImage(t, withoutAgbox+entrypoint, map[string]string{"entry.sh": makesAgbox}), Command: []string{"sh", "-c", "id -un; exec sleep 1d"},
	})
	d.restart() // at any moment of that
	d.await(id, ready)
	const about = `id -u; id -g; echo $HOME; grep -c "made by the entrypoint" /etc/passwd; cat ~/.settings/runs; touch /workspace/mine`
	if got := d.sh(id, about); got != "1234\n1235\n/home/agbox\n1\n0\n" {
		t.Errorf("got %q", got)
	}
	d.halt(id)
	d.resume(id) // the user exists now, and the ENTRYPOINT runs again: its first start decided that
	if got := d.sh(id, about); got != "1234\n1235\n/home/agbox\n1\n0\n0\n" {
		t.Errorf("after a resume got %q", got)
	}
	if got := d.read(d.sandbox(id).GetStdoutLogPath()); got != strings.Repeat("set up\nagbox\n", 2) {
		t.Errorf("it printed %q", got)
	}
}

func TestWhichEntrypointsRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	defer func() { d.TB = t }()
	const label = "\nLABEL io.github.1996fanrui.agents-sandbox.entrypoint="
	const ended = "the image's ENTRYPOINT exited with code 3 before it executed its arguments"
	exits := map[string]string{"entry.sh": "#!/bin/sh\nexit 3\n"}
	for name, c := range map[string]struct {
		recipe, mode, profile string
		files                 map[string]string
		warning, failure      string
	}{
		"auto: no user agbox":              {withoutAgbox, "", "", exits, ended, ""},
		"auto: a user agbox":               {"FROM agbox-base:dev", "auto", "", exits, "", ""},
		"auto: a user agbox and the label": {"FROM agbox-base:dev" + label + "run", "", "", exits, ended, ""},
		"auto: the label skip":             {withoutAgbox + label + "skip", "", "", exits, "", ""},
		"skip":                             {withoutAgbox, "skip", "", exits, "", ""},
		"run":                              {"FROM agbox-base:dev", "run", "", exits, "", ended},
		"run: it executes its arguments":   {"FROM agbox-base:dev", "run", "", map[string]string{"entry.sh": "#!/bin/sh\nexec \"$@\"\n"}, "", ""},
		"run: as a child of another user":  {"FROM agbox-base:dev", "run", "", map[string]string{"entry.sh": "#!/bin/sh\nsu -s /bin/sh nobody -c '\"$@\"' -- sh \"$@\"\n"}, "", ""},
		"run: no such program":             {"FROM agbox-base:dev", "run", "", map[string]string{"entry.sh": "#!/no/such\n"}, "", "the image's ENTRYPOINT exited with code 127 before it executed its arguments"},
		"auto: hardened":                   {withoutAgbox, "", "hardened", exits, "the image's ENTRYPOINT did not run: the security profile is hardened", ""},
		"auto: it ignores its arguments and lives on": {withoutAgbox, "", "", map[string]string{"entry.sh": "#!/bin/sh\nsleep 1d\n"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d.TB = t
			spec := &agboxv1.CreateSpec{Image: builtImage(t, c.recipe+entrypoint, c.files), Entrypoint: c.mode}
			if c.profile != "" {
				spec.Security = &agboxv1.SecuritySpec{Profile: c.profile}
			}
			id := d.create(spec)
			if c.failure != "" {
				d.await(id, failed)
				if got := d.sandbox(id); got.GetErrorCode() != "SANDBOX_CREATE_FAILED" || got.GetErrorMessage() != c.failure {
					t.Errorf("failed with %s %q", got.GetErrorCode(), got.GetErrorMessage())
				}
				return
			}
			d.await(id, ready)
			if got := strings.Join(d.sandbox(id).GetWarnings(), ""); !strings.HasPrefix(got, c.warning) || (got == "") != (c.warning == "") {
				t.Errorf("warned %q", got)
			}
			if got := d.sh(id, "id -un"); got != "agbox\n" {
				t.Errorf("commands run as %q", got)
			}
			if strings.HasSuffix(name, "lives on") { // then it is the main process
				d.docker("exec", "-u", "0", naming.Primary(id), "sh", "-c", "kill $(pidof sleep)")
				d.await(id, failed)
			}
		})
	}
}
