package main

import (
	"fmt"
	"log/slog"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/server/httpapi"
)

const (
	// mostHTTP and mostGRPC are the largest numbers of connections. They suffice for any scraper and any number of programs on one host.
	mostHTTP, mostGRPC = 64, 4096
	// mostTCP and mostHandshakes are those over the network: of clients with certificates, and of those that have not shown one yet.
	mostTCP, mostHandshakes = 1024, 128
	// leastDescriptors is the limit below which /readyz warns. LimitNOFILE of the systemd unit is 65536.
	leastDescriptors = 1024
)

// descriptors holds the process's limit of open file descriptors, and the shares of it for connections. The remainder, at least half, is
// for the database, the engine, inotify and the files of execs.
type descriptors struct{ limit, http, grpc, tcp, handshakes int }

// shareDescriptors divides a limit: a sixteenth for HTTP, which every user of the host can reach, a quarter for gRPC on the socket, a sixteenth
// for it over TCP, and half of that for TLS handshakes.
func shareDescriptors(limit uint64) descriptors {
	n := int(min(limit, math.MaxInt32)) //nolint:gosec // bounded
	return descriptors{
		limit: n, http: min(max(n/16, 2), mostHTTP), grpc: min(max(n/4, 4), mostGRPC), tcp: min(max(n/16, 2), mostTCP),
		handshakes: min(max(n/32, 2), mostHandshakes),
	}
}

// limitedDescriptors divides the hard limit of open files. At its start a Go program raises the soft limit to one less.
func limitedDescriptors(log *slog.Logger) descriptors {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		log.Warn("the limit of open files is not known", "err", err)
		return shareDescriptors(leastDescriptors)
	}
	return shareDescriptors(now.Max)
}

// check returns the line of /readyz about file descriptors.
func (d descriptors) check() httpapi.Check {
	c := httpapi.Check{Name: "descriptors"}
	open, err := os.ReadDir("/proc/self/fd")
	switch {
	case err == nil && len(open) > d.limit/10*9:
		c.Warning = fmt.Sprintf("%d of %d are open; raise LimitNOFILE of the service, or find the clients that hold connections", len(open), d.limit)
	case d.limit < leastDescriptors:
		c.Warning = fmt.Sprintf("the limit of open files is %d; raise LimitNOFILE of the service to %d or more", d.limit, leastDescriptors)
	}
	return c
}

// watches returns the line of /readyz about inotify. All processes of a user, including those in containers, share its instances and
// watches.
func watches(unwatched int) httpapi.Check {
	c := httpapi.Check{Name: "inotify"}
	if unwatched > 0 {
		c.Warning = fmt.Sprintf("the kernel gives no instance or watch for %d sandboxes; agboxd polls their execs several times a second. "+
			"Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches, or find the processes that hold them", unwatched)
	}
	return c
}
