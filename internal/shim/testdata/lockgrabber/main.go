// Command lockgrabber tries to acquire the locks of exec-1 to exec-N in the given directory, as soon as each file exists, and holds those
// that it acquired. It prints "up" when it is ready, and a line "won ID" for each lock.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func main() {
	dir := os.Args[1]
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	fmt.Println("up")
	fds := make(map[int]int)
	won := make(map[int]bool)
	for {
		for i := 1; i <= n; i++ {
			fd, open := fds[i]
			if !open {
				fd, err = syscall.Open(fmt.Sprintf("%s/exec-%d.lock", dir, i), syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
				if err != nil {
					continue
				}
				fds[i] = fd
			}
			if !won[i] && syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				won[i] = true
				fmt.Printf("won exec-%d\n", i)
			}
		}
	}
}
