// Package sdnotify reports the state of this process to systemd, or any other supervisor with the same protocol.
package sdnotify

import (
	"fmt"
	"net"
	"os"
	"time"
)

// States for Notify; several may be joined with a newline.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// sendTimeout bounds one message: a supervisor that does not read must not block the daemon.
const sendTimeout = time.Second

// Notify sends state to the socket in $NOTIFY_SOCKET: a path, or "@name" for an abstract socket. Without the variable it
// does nothing. It blocks for at most a second and may be called at any time.
func Notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	defer conn.Close()
	err = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}
