package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTableOfPastFaultsNamesTestsThatExist keeps docs/past-faults.md true.
func TestTheTableOfPastFaultsNamesTestsThatExist(t *testing.T) {
	namesTestsThatExist(t, "docs/past-faults.md", 50)
}

// TestTheCrashContractNamesTestsThatExist keeps docs/crash-contract.md true.
func TestTheCrashContractNamesTestsThatExist(t *testing.T) {
	namesTestsThatExist(t, "docs/crash-contract.md", 40)
}

// TestTheWalkNamesFilesAndFunctionsThatExist keeps ARCHITECTURE.md true: each .go file that it names exists, and has the function named with it.
func TestTheWalkNamesFilesAndFunctionsThatExist(t *testing.T) {
	const root = "../../.."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("(?:`(\\w+)`\\s+in\\s+)?`([a-z0-9_/]+\\.go)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 15 {
		t.Fatalf("it names %d files", len(names))
	}
	for _, n := range names {
		text, err := os.ReadFile(filepath.Join(root, n[2]))
		if err != nil {
			t.Error(err)
		}
		if n[1] != "" && !regexp.MustCompile(`(?m)^func (\(.*?\) )?`+n[1]+`[(\[]`).Match(text) {
			t.Errorf("%s has no function %s", n[2], n[1])
		}
	}
}

// namesTestsThatExist fails for each test that a page names and that does not exist, and for a page with fewer than atLeast names.
func namesTestsThatExist(t *testing.T, page string, atLeast int) {
	t.Helper()
	const root = "../../.."
	table, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z0-9]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(table), -1)
	if len(names) < atLeast {
		t.Fatalf("%s names %d tests", page, len(names))
	}
	there := testsBelow(t, root)
	for _, n := range names {
		if !there[n[1]+"."+n[2]] {
			t.Errorf("%s names %s.%s, which does not exist", page, n[1], n[2])
		}
	}
}

// testsBelow returns package.Test of all tests, whatever their build tags; an external test package counts as its package.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	pkg, test := regexp.MustCompile(`(?m)^package (\w+?)(_test)?$`), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := pkg.FindSubmatch(text)
		for _, m := range test.FindAllSubmatch(text, -1) {
			there[string(name[1])+"."+string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}
