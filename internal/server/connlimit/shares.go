package connlimit

import (
	"fmt"
	"log/slog"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// mostHTTP and mostGRPC are the largest numbers of connections. They suffice for any scraper and any number of programs on one host.
	mostHTTP, mostGRPC = 64, 4096
	// mostTCP and mostHandshakes are those over the network: of clients with certificates, and of those that have not shown one yet.
	mostTCP, mostHandshakes = 1024, 128
	// leastDescriptors is the limit below which /readyz warns. LimitNOFILE of the systemd unit is 65536.
	leastDescriptors = 1024
)

// Shares holds the process's limit of open file descriptors, and the shares of it for connections. The remainder, at least half, is
// for the database, the engine, inotify and the files of execs.
type Shares struct{ Limit, HTTP, GRPC, TCP, Handshakes int }

// Share divides a limit: a sixteenth for HTTP, which every user of the host can reach, a quarter for gRPC on the socket, a sixteenth
// for it over TCP, and half of that for TLS handshakes.
func Share(limit uint64) Shares {
	n := int(min(limit, math.MaxInt32)) //nolint:gosec // bounded
	return Shares{
		Limit: n, HTTP: min(max(n/16, 2), mostHTTP), GRPC: min(max(n/4, 4), mostGRPC), TCP: min(max(n/16, 2), mostTCP),
		Handshakes: min(max(n/32, 2), mostHandshakes),
	}
}

// ShareProcess divides the hard limit of open files. At its start a Go program raises the soft limit to one less.
func ShareProcess(log *slog.Logger) Shares {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		log.Warn("the limit of open files is not known", "err", err)
		return Share(leastDescriptors)
	}
	return Share(now.Max)
}

// Warning says in one sentence that descriptors run out, or that the limit is low; otherwise it is empty.
func (s Shares) Warning() string {
	open, err := os.ReadDir("/proc/self/fd")
	switch {
	case err == nil && len(open) > s.Limit/10*9:
		return fmt.Sprintf("%d of %d are open; raise LimitNOFILE of the service, or find the clients that hold connections", len(open), s.Limit)
	case s.Limit < leastDescriptors:
		return fmt.Sprintf("the limit of open files is %d; raise LimitNOFILE of the service to %d or more", s.Limit, leastDescriptors)
	}
	return ""
}
