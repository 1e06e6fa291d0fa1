// Command hog allocates memory until the kernel refuses or kills it: kernel memory that outlives its processes, or its own memory.
//
//	hog segments | attached | queues | semaphores | mqueues | files | own
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	hogs := map[string]func() int{
		"segments": func() int { return segments(true) }, "attached": func() int { return segments(false) },
		"queues": queues, "semaphores": semaphores, "mqueues": mqueues, "files": files, "own": own,
	}
	n := hogs[os.Args[1]]()
	fmt.Println(os.Args[1], n)
	if len(os.Args) > 2 {
		time.Sleep(time.Hour) // until it is killed
	}
}

const segment = 1 << 20

// segments creates shared memory segments and fills them; they stay attached, or only allocated.
func segments(detach bool) (n int) {
	for ; ; n++ {
		data := newSegment()
		if data == nil || detach && unix.SysvShmDetach(data) != nil {
			return n
		}
	}
}

func newSegment() []byte {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, segment, unix.IPC_CREAT|0o600)
	if err != nil {
		return nil
	}
	data, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return nil
	}
	for i := range data {
		data[i] = 1
	}
	return data
}

// queues fills message queues with the smallest messages, which use the most kernel memory per byte.
func queues() (n int) {
	msg := struct {
		kind int64
		text [8]byte
	}{kind: 1}
	for {
		id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0)
		if errno != 0 {
			return n
		}
		for ; ; n++ {
			_, _, errno := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&msg)), 1, unix.IPC_NOWAIT, 0, 0)
			if errno != 0 {
				break
			}
		}
	}
}

func semaphores() (n int) {
	for ; ; n++ {
		size := uintptr(32000)
		for ; size > 0; size /= 2 {
			if _, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600); errno == 0 {
				break
			}
		}
		if size == 0 {
			return n
		}
	}
}

func mqueues() (n int) {
	attr := struct{ flags, maxMsg, msgSize, cur, _, _, _, _ int64 }{maxMsg: 10, msgSize: 8192}
	text := make([]byte, 8192)
	for i := 0; ; i++ {
		name, _ := unix.BytePtrFromString("q" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i))
		fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR|unix.O_NONBLOCK, 0o600,
			uintptr(unsafe.Pointer(&attr)), 0, 0)
		if errno != 0 {
			return n
		}
		for range 10 {
			_, _, errno := unix.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), 0, 0, 0)
			if errno == 0 {
				n++
			}
		}
		_ = unix.Close(int(fd))
	}
}

// files creates empty files in /dev/shm; they do not count toward its size limit.
func files() (n int) {
	for ; ; n++ {
		fd, err := unix.Open(fmt.Sprintf("/dev/shm/%d-%d", os.Getpid(), n), unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL, 0o600)
		if err != nil {
			return n
		}
		_ = unix.Close(fd)
	}
}

// own allocates memory of this process, which has several threads: when the kernel kills it, the last thread to exit frees the memory.
func own() int {
	for held := [][]byte{}; ; {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1 // a write allocates the page
		}
		held = append(held, b)
	}
}
