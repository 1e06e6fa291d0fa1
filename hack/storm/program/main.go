// Command program runs in the sandboxes of a storm. It records its start and its end in a ledger outside of agbox, and writes a stream
// whose every byte can be verified.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/agbox/agbox/internal/audit/stream"
)

func main() {
	id := flag.String("id", "", "exec ID")
	ledger := flag.String("ledger", "/ledger", "directory of the ledger")
	lines := flag.Int("lines", 0, "lines of the stream")
	pause := flag.Duration("pause", 0, "pause before each line")
	code := flag.Int("code", 0, "exit code")
	hog := flag.Bool("hog", false, "allocate memory until killed")
	flag.Parse()
	if err := run(*id, *ledger, *lines, *pause, *code, *hog); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	os.Exit(*code)
}

// run records the start first and the end last, each with one write.
func run(id, ledger string, lines int, pause time.Duration, code int, hog bool) error {
	f, err := os.OpenFile(ledger+"/"+id, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "start %s\n", id); err != nil {
		return err
	}
	err = stream.Write(os.Stdout, id, lines, func(int) error {
		time.Sleep(pause) // spreads the stream over the run of the program
		return nil
	})
	if err != nil {
		return err
	}
	for held := [][]byte{}; hog; {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1 // a write allocates the page
		}
		held = append(held, b)
		if len(held) > 1024 {
			return fmt.Errorf("exec %s: nothing bounds its memory", id)
		}
	}
	_, err = fmt.Fprintf(f, "end %s %d\n", id, code)
	return err
}
