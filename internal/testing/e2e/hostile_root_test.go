//go:build docker

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestRootInsideBreaksItsOwnSandboxOnly: it locks, forges, deletes, replaces, plants FIFOs and links in its log directory. Another
// sandbox and the daemon take no harm, and the delete cleans up.
func TestRootInsideBreaksItsOwnSandboxOnly(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	hostile, peaceful := d.create(&agboxv1.CreateSpec{User: "root"}), d.create(nil)
	d.await(hostile, ready)
	d.await(peaceful, ready)
	bystander := d.exec(peaceful, "sh", "-c", "echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo done; exit 7")
	d.printed(bystander, 1)
	victim := t.TempDir() + "/victim"
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	journal := `{"version":1,"exec_id":"%[1]s","nonce":"0123456789abcdef","state":"ended","exit_code":0}`
	script := `set -e
		cd /var/log/agents-sandbox
		printf '` + fmt.Sprintf(journal, bystander.GetExecId()) + `' > ` + bystander.GetExecId() + `.journal
		for n in 1 2 3 4 5 6; do
			case $n in
			1) mkfifo planted-1.journal;;
			2) ln -s ` + victim + ` planted-2.stdout.log; ln -s ` + victim + ` .planted-2.end.tmp;;
			3) mkfifo planted-3.lock;;
			4) mkdir planted-4.lock;;
			5) printf '` + fmt.Sprintf(journal, "planted-5") + `' > planted-5.journal;;
			6) : > planted-6.lock; chmod 600 planted-6.lock; setsid flock -x planted-6.lock sleep 1000 & sleep 0.3;;
			esac
		done
		d=.; for i in $(seq 60); do d=$d/deep; mkdir $d; done; : > $d/file
		for i in $(seq 2000); do : > junk-$i.journal; done
		ln -s / root; ln -s ../` + peaceful + ` neighbour
		echo planted`
	if out := d.sh(hostile, script); out != "planted\n" {
		t.Errorf("%q", out)
	}
	var all []string
	for n := range 6 {
		id := fmt.Sprintf("planted-%d", n+1)
		must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: hostile, ExecId: id, Command: []string{"true"}}))(t)
		all = append(all, id)
	}
	for _, id := range []string{"planted-1", "planted-2", "planted-5"} {
		if st := d.ended(id); st.GetState() != ruined {
			t.Errorf("%v", st)
		}
	}
	// At last it locks itself out and removes the files.
	d.exec(hostile, "sh", "-c", "cd /var/log/agents-sandbox; chown 4242:4242 .; chmod 0 .; rm -f *.log *.lock; while :; do ln -sf /etc planted-7.journal; rm -f planted-7.journal; done")
	if out := d.sh(peaceful, "echo fine"); out != "fine\n" {
		t.Errorf("%q", out)
	}
	d.restart()
	if out := d.sh(peaceful, "touch /tmp/go; echo fine"); out != "fine\n" {
		t.Errorf("after a restart: %q", out)
	}
	if st := d.ended(bystander.GetExecId()); st.GetExitCode() != 7 || d.read(bystander.GetStdoutLogPath()) != "up\ndone\n" {
		t.Errorf("the bystander: %v", st)
	}
	for _, id := range all { // stalled ones can be ended
		_, err := d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: id})
		if err != nil && !strings.Contains(err.Error(), "terminal") {
			t.Errorf("cancel %s: %v", id, err)
		}
	}
	d.remove(hostile)
	for _, id := range all {
		d.ended(id)
	}
	if d.read(victim) != "precious" {
		t.Error("a file of the host was written")
	}
	if out := d.sh(peaceful, "echo fine"); out != "fine\n" {
		t.Errorf("after the delete: %q", out)
	}
	d.remove(peaceful)
}
