package main

import (
	"fmt"
	"io"

	"github.com/agbox/agbox/store"
)

// checkStore is the child process of "agbox backup verify": reading a damaged database may cause a fault that cannot be recovered from.
func checkStore(path string, stderr io.Writer) int {
	if err := store.CheckFile(path); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
