// Package ipcbounds bounds the memory of a container that outlives its processes: files in /dev/shm, System V segments, message
// queues and semaphores, POSIX message queues. Killing processes does not free it, so all of it together must leave room for PID 1.
package ipcbounds

import (
	"fmt"
	"os"
	"strconv"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// Room is the memory for PID 1 and the supervisor of an exec, measured with containers of 32 MiB.
	Room = 8 * mib
	// engineShm is the engine's default size of /dev/shm. A larger limit does not increase it, so that the limit can be lowered
	// later: the bounds are fixed when the container is created.
	engineShm = 64 * mib
)

// The maximum memory that the kernel uses for one object, measured or computed from the structures of Linux 6.1.
const (
	fileBytes    = 1 * kib  // an empty file of a tmpfs: inode and directory entry
	segmentBytes = 2 * kib  // a System V segment, without its pages
	queueBytes   = 1 * mib  // a System V queue of 16,384 messages (kernel.msgmnb) of one byte, 64 bytes each
	semBytes     = 64       // one semaphore, which has a cache line of its own
	setBytes     = 320      // a set of semaphores, without them
	mqueueBytes  = 88 * kib // a POSIX queue of 10 messages of 8 KiB, the largest that commands may create
)

// Bounds are the limits of one container.
type Bounds struct {
	// ShmBytes and ShmFiles are the size of /dev/shm and its maximum number of files.
	ShmBytes, ShmFiles int64
	// SegmentBytes of System V memory, in Segments segments.
	SegmentBytes, Segments int64
	// Queues are System V message queues, MQueues POSIX ones.
	Queues, MQueues int64
	// Semaphores of System V, in Sets sets.
	Semaphores, Sets int64
}

// Of returns the bounds of a container with a memory limit in bytes: three quarters of it in total, less for a large limit. The limit
// must be positive: without a limit there are no bounds.
func Of(limit int64) Bounds {
	b := Bounds{
		ShmBytes: min(limit/2, engineShm), ShmFiles: share(limit, fileBytes, 32, 16384),
		SegmentBytes: min(limit/8, 64*mib), Segments: share(limit, segmentBytes, 16, 4096),
		Queues: share(limit, queueBytes, 1, 16), MQueues: share(limit, mqueueBytes, 1, 64),
		Semaphores: share(limit, 2*semBytes, 256, 32000),
	}
	b.Sets = max(b.Semaphores*semBytes/setBytes, 16)
	return b
}

// share returns how many objects of size bytes fit into 1/64 of the limit.
func share(limit, size, least, most int64) int64 {
	return min(max(limit/64/size, least), most)
}

// Sum is the maximum memory of all objects together, in bytes.
func (b Bounds) Sum() int64 {
	return b.ShmBytes + b.ShmFiles*fileBytes + b.SegmentBytes + b.Segments*segmentBytes + b.Queues*queueBytes + b.MQueues*mqueueBytes +
		b.Semaphores*semBytes + b.Sets*setBytes
}

// Sysctls returns the kernel settings for the container's IPC namespace.
func (b Bounds) Sysctls() map[string]string {
	return map[string]string{
		"kernel.shmall":        strconv.FormatInt(b.SegmentBytes/int64(os.Getpagesize()), 10),
		"kernel.shmmni":        strconv.FormatInt(b.Segments, 10),
		"kernel.msgmni":        strconv.FormatInt(b.Queues, 10),
		"kernel.msgmnb":        "16384", // the kernel's default, from which queueBytes is computed
		"kernel.sem":           fmt.Sprintf("%d %d 500 %d", b.Semaphores, b.Semaphores, b.Sets),
		"fs.mqueue.queues_max": strconv.FormatInt(b.MQueues, 10),
	}
}

// Least is the lowest memory limit in bytes to which a container that was created with the limit made can be lowered; 0: created without one.
func Least(made int64) int64 {
	if made == 0 {
		return engineShm + Room
	}
	return min(Of(made).Sum()+Room, made)
}
