package shim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// appenderEnv makes the test binary append to an inbox, as agboxd does, until it is killed. Its value: output root, run root, exec, offset
// and seed.
const appenderEnv = "AGBOX_SHIM_TEST_APPENDER"

const appendBytes = 16 << 20

// prompt returns the data that an appender with that seed appends.
func prompt(seed int) []byte {
	line := fmt.Sprintf("%d %s\n", seed, strings.Repeat("prompt ", 100))
	return bytes.Repeat([]byte(line), appendBytes/len(line))
}

func runAppender() {
	args := strings.Split(os.Getenv(appenderEnv), " ")
	var offset int64
	var seed int
	if _, err := fmt.Sscan(args[3]+" "+args[4], &offset, &seed); err != nil {
		os.Exit(2)
	}
	data := prompt(seed)
	fmt.Println("ready")
	if _, err := execjournal.New(args[0], args[1]).AppendInbox(sandbox, args[2], offset, data); err != nil {
		os.Exit(1)
	}
	select {}
}

// killed starts an appender, kills it after the given time, and returns how many bytes it had appended.
func (b *box) killed(r execjournal.Request, roots [2]string, offset int64, seed int, after time.Duration) int64 {
	b.Helper()
	self, err := os.Executable()
	must(b, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d %d", appenderEnv, roots[0], roots[1], r.ExecID, offset, seed))
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	_, err = out.Read(make([]byte, 16)) // ready
	must(b, err)
	time.Sleep(after) // the test varies the point of the kill within the append
	must(b, cmd.Process.Kill())
	_ = cmd.Wait() // the kill makes Wait return an error
	size, err := b.dir.InboxSize(sandbox, r.ExecID)
	must(b, err)
	return size - offset
}

// tornAppends kills appenders in the middle of appends, completes the appends, and checks what the command read.
func (b *box) tornAppends(rounds int) {
	b.Helper()
	roots := [2]string{parent(b.paths.Logs), parent(parent(b.paths.Ctl))}
	r := b.start(b.agent("sha256sum"))
	sum := sha256.New()
	var offset int64
	torn := 0
	for seed := range rounds {
		n := b.killed(r, roots, offset, seed, time.Duration(rand.IntN(6_000))*time.Microsecond)
		data := prompt(seed)
		if n > 0 && n < int64(len(data)) {
			torn++
		}
		var err error
		offset, err = b.dir.AppendInbox(sandbox, r.ExecID, offset, data)
		must(b, err)
		sum.Write(data)
	}
	b.closeInbox(r)
	b.ended(r)
	if out, _ := b.logs(r); !strings.HasPrefix(out, fmt.Sprintf("%x", sum.Sum(nil))) {
		b.Errorf("the command read something else: %s", out)
	}
	b.Logf("%d of %d appends were torn", torn, rounds)
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

func TestInboxSurvivesADaemonThatIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	newBox(t).boot().tornAppends(8)
}
