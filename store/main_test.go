package store

import (
	"fmt"
	"os"
	"testing"
)

// childEnv selects the child that the test binary runs when a test starts it as a child process.
const childEnv = "AGBOX_STORE_TEST_CHILD"

var children = map[string]func() int{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(children[name]())
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector delays the exit of each child by a second
	os.Exit(m.Run())
}

// inShort returns the size of a long test: sample with -short, else all.
func inShort(sample, all int) int {
	if testing.Short() {
		return sample
	}
	return all
}

// childProgram returns a CheckProgram, or any other command, that runs the named child.
func childProgram(t testing.TB, name string) []string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	return []string{"/usr/bin/env", childEnv + "=" + name, exe}
}

// inDirectory returns a child that runs work in the directory named by pathEnv and prints its error.
func inDirectory(work func(dir string) error) func() int {
	return func() int {
		if err := work(os.Getenv(pathEnv)); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
}
