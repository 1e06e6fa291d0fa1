package store

import (
	"fmt"
	"os"
	"testing"
)

// childEnv selects what the test binary does when a test runs it again as a child process.
const childEnv = "AGBOX_STORE_TEST_CHILD"

var children = map[string]func() int{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(children[name]())
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector makes each child last a second
	os.Exit(m.Run())
}

// inShort is how much of a long test is run: with -short a sample, else all.
func inShort(sample, all int) int {
	if testing.Short() {
		return sample
	}
	return all
}

// childProgram is a CheckProgram, or any other command, that runs the named child.
func childProgram(t testing.TB, name string) []string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	return []string{"/usr/bin/env", childEnv + "=" + name, exe}
}

// inDirectory makes a child of what works in the directory that pathEnv names and prints what went wrong.
func inDirectory(work func(dir string) error) func() int {
	return func() int {
		if err := work(os.Getenv(pathEnv)); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
}
