// Command keeper allocates as much memory as it can that outlives its process.
//
//	keeper shm MIB        one System V segment, touched
//	keeper messages       System V message queues, filled with empty messages
//	keeper inodes DIR     empty files in DIR
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

const (
	ipcPrivate = 0
	ipcCreate  = 0o1000
	ipcNoWait  = 0o4000
)

func main() {
	switch os.Args[1] {
	case "shm":
		mib, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		segment(mib << 20)
	case "messages":
		messages()
	case "inodes":
		for i := 0; ; i++ {
			fd, err := syscall.Open(fmt.Sprintf("%s/%d", os.Args[2], i), syscall.O_CREAT|syscall.O_WRONLY, 0o600)
			if err != nil {
				fmt.Println(i, "files:", err)
				return
			}
			syscall.Close(fd)
		}
	}
}

func segment(size int) {
	id, _, errno := syscall.Syscall(syscall.SYS_SHMGET, ipcPrivate, uintptr(size), ipcCreate|0o600)
	if errno != 0 {
		fmt.Println("shmget:", errno)
		return
	}
	at, _, errno := syscall.Syscall(syscall.SYS_SHMAT, id, 0, 0)
	if errno != 0 {
		fmt.Println("shmat:", errno)
		return
	}
	for i := 0; i < size; i += 4096 {
		*(*byte)(unsafe.Pointer(at + uintptr(i))) = 1 // touch one page
	}
	fmt.Println("touched", size)
}

func messages() {
	for n := 0; ; n++ {
		q, _, errno := syscall.Syscall(syscall.SYS_MSGGET, ipcPrivate, ipcCreate|0o600, 0)
		if errno != 0 {
			fmt.Println(n, "queues:", errno)
			return
		}
		m := struct {
			kind int64
			text [1]byte
		}{kind: 1}
		for errno == 0 {
			_, _, errno = syscall.Syscall6(syscall.SYS_MSGSND, q, uintptr(unsafe.Pointer(&m)), 1, ipcNoWait, 0, 0)
		}
	}
}
