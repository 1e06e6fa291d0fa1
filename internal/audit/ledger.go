package audit

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ledgerEntry is the record of one exec that its program wrote itself, independent of the daemon.
type ledgerEntry struct {
	starts int
	ended  bool
	code   int
}

// readLedger reads the files of a directory; programs append lines to them:
//
//	start <exec_id>
//	end <exec_id> <exit code>
//
// A last line without a newline, torn by the death of its program, counts as far as it is complete.
func readLedger(dir string) (map[string]ledgerEntry, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string]ledgerEntry{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := readLedgerFile(filepath.Join(dir, e.Name()), all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readLedgerFile(path string, all map[string]ledgerEntry) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		w := strings.Fields(lines.Text())
		switch {
		case len(w) == 2 && w[0] == "start":
			e := all[w[1]]
			e.starts++
			all[w[1]] = e
		case len(w) == 3 && w[0] == "end":
			code, err := strconv.Atoi(w[2])
			if err != nil {
				return fmt.Errorf("%s:%d: %w", path, n, err)
			}
			e := all[w[1]]
			e.ended, e.code = true, code
			all[w[1]] = e
		default:
			return fmt.Errorf("%s:%d: %q is not a line of a ledger", path, n, lines.Text())
		}
	}
	return lines.Err()
}
