package shim

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// The daemon dies after it has asked for streams: PID 1 can neither open nor refuse them, and goes on.
func TestADaemonThatDiesBehindAnOpen(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]channel.Frame{
		"to a worker": {Kind: channel.Open, Text: "t"},
		"to an exec":  {Kind: channel.Open, Text: "t", Exec: "exec"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			socket := filepath.Join(b.paths.Ctl, execjournal.ExecDir, channel.SocketName)
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			must(t, err)
			b.boot()
			conn, err := l.AcceptUnix()
			must(t, err)
			defer conn.Close()
			_, err = channel.NewReader(conn).Read()
			must(t, err)
			must(t, l.Close())
			must(t, conn.CloseRead()) // a Refuse fails, as after a death between the two
			var frames []byte
			for range maxAwaiting + 1 { // the last one is refused at once
				frames = open.Append(frames)
			}
			_, err = conn.Write(frames)
			must(t, err)
			if j := b.ended(b.start(b.sh("exit 3"))); j.ExitCode != 3 {
				t.Errorf("%+v", j)
			}
		})
	}
}
