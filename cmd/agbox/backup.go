package main

import (
	"fmt"
	"io"

	"github.com/agbox/agbox/store"
)

// checkStore is run by "agbox backup verify" as a child: a damaged database may fault where nothing can recover.
func checkStore(path string, stderr io.Writer) int {
	if err := store.CheckFile(path); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
