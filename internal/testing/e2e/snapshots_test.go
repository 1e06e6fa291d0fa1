//go:build docker

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// large is the size of a file whose commit takes seconds. It is sparse, and the engine copies all of it.
const large = 256 << 20

// writesLarge is a script that writes it, and a mark.
var writesLarge = fmt.Sprintf("echo kept >/workspace/mark; dd if=/dev/zero of=/workspace/large bs=1 count=1 seek=%d 2>/dev/null", large-1)

// largeBox is a READY sandbox whose commit takes seconds.
func (d *daemon) largeBox() string {
	d.Helper()
	id := d.create(nil)
	d.await(id, ready)
	d.sh(id, writesLarge)
	return id
}

type outcome struct {
	made *agboxv1.Snapshot
	err  error
}

// commits asks for a snapshot and returns while the engine copies: the primary is frozen, and no image is there yet.
func (d *daemon) commits(id, snap string) <-chan outcome {
	d.Helper()
	end := d.asks(id, snap)
	d.awaitStatus(id, "paused")
	return end
}

func (d *daemon) asks(id, snap string) <-chan outcome {
	end := make(chan outcome, 1)
	go func() {
		made, err := d.snapshot(id, snap)
		end <- outcome{made, err}
	}()
	return end
}

// snapshot makes a snapshot, and waits for one that takes longer than a call.
func (d *daemon) snapshot(id, snap string) (*agboxv1.Snapshot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		resp, err := d.CreateSnapshot(ctx, &agboxv1.CreateSnapshotRequest{SandboxId: id, SnapshotId: snap})
		if isCode(err, codes.DeadlineExceeded) && ctx.Err() == nil {
			continue // the daemon goes on
		}
		return resp.GetSnapshot(), err
	}
}

// made waits for a snapshot.
func (d *daemon) made(end <-chan outcome) *agboxv1.Snapshot {
	d.Helper()
	o := <-end
	return must(o.made, o.err)(d)
}

func (d *daemon) listed() []*agboxv1.Snapshot {
	d.Helper()
	return must(d.ListSnapshots(d.ctx(), &agboxv1.ListSnapshotsRequest{}))(d).GetSnapshots()
}

// awaitImages waits until the daemon's snapshots are the only images, and no part of one is left.
func (d *daemon) awaitImages(want ...*agboxv1.Snapshot) {
	d.Helper()
	d.eventually("no part of a snapshot is left", func() error {
		images := d.images(strings.Join(d.instance(), ""))
		if len(images) != len(want) {
			return fmt.Errorf("there are %v", images)
		}
		for _, s := range want {
			if !strings.Contains(strings.Join(images, " "), s.GetImage()) {
				return fmt.Errorf("%s is not among %v", s.GetImage(), images)
			}
		}
		return nil
	})
}

// commitsOf is how many commits of a container the engine has completed.
func (d *daemon) commitsOf(id string, since time.Time) int {
	d.Helper()
	return strings.Count(d.docker("events", "--since", fmt.Sprint(since.Unix()), "--until", fmt.Sprint(time.Now().Unix()+1),
		"--filter", "event=commit", "--filter", "container="+naming.Primary(id), "--format", "{{.Action}}"), "commit")
}

// inContainerd reports whether the engine has its images in containerd's store. Such an engine gives up a commit whose client has left, and
// keeps for a day what a failed one has written.
func (d *daemon) inContainerd() bool {
	d.Helper()
	return strings.Contains(d.docker("info", "-f", "{{.DriverStatus}}"), "io.containerd.snapshotter")
}

// inherits makes a sandbox of a snapshot, has it run a script, and removes it.
func (d *daemon) inherits(s *agboxv1.Snapshot, script string) string {
	d.Helper()
	id := d.create(&agboxv1.CreateSpec{Image: s.GetImage()})
	d.await(id, ready)
	out := d.sh(id, script)
	d.remove(id)
	return out
}

func (d *daemon) dropSnapshot(s *agboxv1.Snapshot) {
	d.Helper()
	must(d.RemoveSnapshot(d.ctx(), &agboxv1.RemoveSnapshotRequest{SnapshotId: s.GetSnapshotId()}))(d)
}

// TestKilledAmidACommit: the engine goes on with the commit of the dead daemon, while the next one makes the snapshot again.
func TestKilledAmidACommit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"2s\"\n")
	id, begun := d.largeBox(), time.Now()
	const lines = 200
	x := d.exec(id, counting(lines)...)
	d.printed(x, 1)
	end := d.commits(id, "snap-1")
	d.kill()
	if o := <-end; o.err == nil {
		t.Fatalf("the commit was shorter than the life of the daemon: %v", o.made)
	}
	if err := d.noImages(); err != nil {
		t.Fatalf("the commit was shorter than the life of the daemon: %v", err)
	}
	d.start()
	d.awaitStatus(id, "running")
	d.await(id, ready)
	if all := d.listed(); len(all) != 0 {
		t.Errorf("there is %v", all)
	}
	made := must(d.snapshot(id, "snap-1"))(t)
	d.awaitStatus(id, "running")
	if !d.inContainerd() {
		d.eventually("both commits have ended", func() error {
			if n := d.commitsOf(id, begun); n != 2 {
				return fmt.Errorf("%d have", n)
			}
			return nil
		})
	}
	d.awaitImages(made)
	if all := d.listed(); len(all) != 1 || !proto.Equal(all[0], made) {
		t.Errorf("listed %v, want %v", all, made)
	}
	d.wantCounted(x, lines)
	d.wantRows(id, "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FINISHED EXEC_STARTED EXEC_FAILED")
	d.remove(id)
	if got := d.inherits(made, "cat /workspace/mark; stat -c %s /workspace/large"); got != fmt.Sprintf("kept\n%d\n", large) {
		t.Errorf("the snapshot has %q", got)
	}
	d.dropSnapshot(made)
	d.awaitImages()
}

// TestAPartIsGarbageOfADeadDaemon: agbox gc removes what the engine made for a dead daemon, where no resync has done so yet.
func TestAPartIsGarbageOfADeadDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n")
	if d.inContainerd() {
		t.Skip("the engine makes no image for a dead daemon")
	}
	id := d.largeBox()
	for n := range 10 {
		begun := time.Now()
		end := d.commits(id, fmt.Sprintf("snap-%d", n))
		d.kill()
		<-end
		d.start()
		d.awaitStatus(id, "running")
		d.eventually("the engine's commit has ended", func() error {
			if d.commitsOf(id, begun) == 0 {
				return fmt.Errorf("it has not")
			}
			return nil
		})
		found := strings.Contains(d.agbox("gc"), "image")
		d.awaitImages()
		if found {
			d.remove(id)
			return
		}
		// The engine was done before the first resync, which has removed the part: once more.
	}
	t.Error("gc found no part")
}

// TestAnOrderlyEndAmidACommit: the sandbox is not frozen while there is no daemon.
func TestAnOrderlyEndAmidACommit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"2s\"\n")
	id, begun := d.largeBox(), time.Now()
	end := d.commits(id, "snap-1")
	d.stop()
	if o := <-end; o.err == nil {
		t.Fatalf("the commit was shorter than the life of the daemon: %v", o.made)
	}
	if got := d.status(naming.Primary(id)); got != "running" {
		t.Errorf("without a daemon the primary is %s", got)
	}
	if !d.inContainerd() {
		d.eventually("the engine's commit has ended", func() error {
			if d.commitsOf(id, begun) == 0 {
				return fmt.Errorf("it has not")
			}
			return nil
		})
	}
	d.start()
	d.awaitImages()
	d.remove(id)
}

// TestARequestAmidACommit: a stop and a delete do not wait for the commit, a pause does. No snapshot has files that changed while they
// were copied.
func TestARequestAmidACommit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"2s\"\nstop_grace = \"2s\"\n")
	t.Run("pause", func(t *testing.T) {
		id := d.largeBox()
		end := d.commits(id, "pause")
		d.pauseBox(id)
		made := d.made(end)
		d.await(id, paused)
		if got := d.status(naming.Primary(id)); got != "paused" {
			t.Errorf("the primary is %s", got)
		}
		again := must(d.snapshot(id, "paused"))(t)
		if got := d.status(naming.Primary(id)); got != "paused" {
			t.Errorf("after the snapshot of the paused one the primary is %s", got)
		}
		d.awaitImages(made, again)
		d.remove(id)
		for _, s := range []*agboxv1.Snapshot{made, again} {
			if got := d.inherits(s, "cat /workspace/mark"); got != "kept\n" {
				t.Errorf("%s has %q", s.GetSnapshotId(), got)
			}
			d.dropSnapshot(s)
		}
	})
	t.Run("stop", func(t *testing.T) {
		id := d.named("writes", &agboxv1.CreateSpec{Command: []string{"sh", "-c", `trap "echo last >>/workspace/mark; exit 0" TERM; while :; do sleep 0.1; done`}})
		d.await(id, ready)
		d.sh(id, writesLarge)
		end := d.commits(id, "stop")
		d.halt(id)
		made := d.made(end)
		if got := d.inherits(made, "cat /workspace/mark"); got != "kept\nlast\n" {
			t.Errorf("it has %q", got)
		}
		d.awaitImages(made)
		d.remove(id)
		d.dropSnapshot(made)
	})
	t.Run("delete", func(t *testing.T) {
		id := d.largeBox()
		end := d.commits(id, "delete")
		d.remove(id)
		if o := <-end; !isCode(o.err, codes.FailedPrecondition) {
			t.Errorf("made %v, %v", o.made, o.err)
		}
		d.awaitImages()
	})
	t.Run("two at once", func(t *testing.T) {
		id := d.largeBox()
		first, second := d.asks(id, "same"), d.asks(id, "same")
		if a, b := d.made(first), d.made(second); !proto.Equal(a, b) {
			t.Errorf("made %v and %v", a, b)
		} else {
			d.awaitImages(a)
			d.dropSnapshot(a)
		}
		d.remove(id)
	})
}

// TestTheEnginesDeathAmidACommit, which leaves no snapshot; the same request then makes it.
func TestTheEnginesDeathAmidACommit(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "--live-restore"} {
		t.Run("dockerd "+mode, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(mode)
			e := newEngine(t, args...)
			d := newDaemon(t, e.Host(), "[runtime]\nresync_interval = \"2s\"\n")
			id := d.largeBox()
			end := d.commits(id, "snap-1")
			e.Kill()
			if o := <-end; o.err == nil {
				t.Fatalf("the commit was shorter than the life of the engine: %v", o.made)
			}
			e.Start(args...)
			var made *agboxv1.Snapshot
			d.eventually("the snapshot is made", func() (err error) {
				made, err = d.snapshot(id, "snap-1")
				return err
			})
			d.awaitStatus(id, "running")
			d.await(id, ready)
			d.awaitImages(made)
			d.remove(id)
			if got := d.inherits(made, "cat /workspace/mark"); got != "kept\n" {
				t.Errorf("it has %q", got)
			}
			d.dropSnapshot(made)
		})
	}
}

// TestASnapshotThatFillsTheEnginesDisk is refused, and leaves nothing there.
func TestASnapshotThatFillsTheEnginesDisk(t *testing.T) {
	t.Parallel()
	disk := must(os.MkdirTemp("", "agbox-ed-"))(t)
	mountSmall(t, disk, disk+"/d", onExt4("256m"))
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	e := newEngineIn(t, disk+"/d")
	d := newDaemonIn(t, home, e.Host(), "")
	if d.inContainerd() {
		t.Skip("the engine keeps what a failed commit has written: docs/engines.md")
	}
	id := d.largeBox()
	free := func() uint64 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(disk+"/d", &st); err != nil {
			t.Fatal(err)
		}
		return st.Bavail * uint64(st.Bsize)
	}
	before := free()
	made, err := d.snapshot(id, "snap-1")
	if !isCode(err, codes.Unavailable) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("made %v: %v", made, err)
	}
	d.awaitStatus(id, "running")
	d.await(id, ready)
	d.awaitImages()
	if after := free(); after+(8<<20) < before {
		t.Errorf("%d bytes were free, and are %d", before, after)
	}
	d.acceptsAgain(id)
	d.sh(id, "rm /workspace/large; echo more >>/workspace/mark")
	d.eventually("there is room", func() (err error) {
		made, err = d.snapshot(id, "snap-1")
		return err
	})
	if got := d.inherits(made, "cat /workspace/mark"); got != "kept\nmore\n" {
		t.Errorf("it has %q", got)
	}
	d.remove(id)
	d.dropSnapshot(made)
}

// TestASnapshotHasTheConfigurationOfTheImage, all of it, and nothing of the container's.
func TestASnapshotHasTheConfigurationOfTheImage(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	const more = `
USER 0
RUN echo "someone:x:4321:4321::/workspace:/bin/sh" >>/etc/passwd
ENV A=of-the-image
ENTRYPOINT ["/bin/sh", "-c", "exec \"$@\"", "-"]
CMD ["sleep", "1d"]
VOLUME /declared
EXPOSE 8080/tcp
WORKDIR /workspace
HEALTHCHECK --interval=7s CMD true
STOPSIGNAL SIGINT
SHELL ["/bin/sh", "-ec"]
LABEL own=label
USER someone
`
	image := builtImage(t, "FROM "+baseImage+more, nil)
	id := d.create(&agboxv1.CreateSpec{Image: image, Envs: map[string]string{"SECRET": "hunter2"}})
	d.await(id, ready)
	d.sh(id, "echo kept >/workspace/mark; id -un >/workspace/who")
	config := func(ref string) string {
		return d.docker("image", "inspect", "-f", `{{range $k, $v := .Config.Labels}}{{if eq $k "own"}}{{$v}}{{end}}{{end}}`, ref) + strings.Join([]string{
			d.docker("image", "inspect", "-f", "{{json .Config.Entrypoint}}{{json .Config.Cmd}}{{json .Config.Env}}{{json .Config.User}}", ref),
			d.docker("image", "inspect", "-f", "{{json .Config.Volumes}}{{json .Config.ExposedPorts}}{{json .Config.WorkingDir}}", ref),
			d.docker("image", "inspect", "-f", "{{json .Config.Healthcheck}}{{json .Config.StopSignal}}{{json .Config.Shell}}", ref),
		}, "")
	}
	want, last := config(image), (*agboxv1.Snapshot)(nil)
	for n := range 3 { // a snapshot of a snapshot, and so on
		made := must(d.snapshot(id, fmt.Sprintf("snap-%d", n)))(t)
		d.remove(id)
		if got := config(made.GetImage()); got != want || !strings.Contains(got, "of-the-image") {
			t.Errorf("snapshot %d has\n%s, want\n%s", n, got, want)
		}
		if all := d.docker("image", "inspect", made.GetImage()); strings.Contains(all, "hunter2") || strings.Contains(all, naming.SandboxID) {
			t.Errorf("snapshot %d has something of the container: %s", n, all)
		}
		id = d.create(&agboxv1.CreateSpec{Image: made.GetImage(), Envs: map[string]string{"SECRET": "hunter2"}})
		d.await(id, ready)
		if got := d.sh(id, "cat /workspace/mark /workspace/who; id -un"); !strings.HasPrefix(got, "kept\n") || strings.Count(got, "\n") != 3 {
			t.Errorf("of snapshot %d: %q", n, got)
		}
		if last != nil { // the next one does not need it
			d.dropSnapshot(last)
		}
		last = made
	}
	d.remove(id)
	d.dropSnapshot(last)
	d.awaitImages()
}
