package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// heap returns the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMemoryDoesNotGrowWithHistory(t *testing.T) {
	s := withHistory(t, 20, 10)
	few := heap()
	thousands := inShort(1, 5) // per sandbox
	for i := range 20 {
		for range thousands {
			many := make([]*agboxv1.SandboxEvent, 1000)
			for j := range many {
				many[j] = serviceEvent()
			}
			report(t, s, boxID(i), many...)
		}
	}
	s = reopen(t, s)
	if many := heap(); many > few+2<<20 {
		t.Fatalf("heap grew from %d to %d bytes with %d events", few, many, 20*1000*thousands)
	}
	if n := get1(t, s, boxID(0)).LastSequence; n != uint64(10+1000*thousands) {
		t.Fatalf("%d events", n)
	}
}

func TestTheDefaultMappingCostsOnlyAddresses(t *testing.T) {
	o := testOptions(t)
	o.InitialMmapSize = 0
	before := heap()
	s := open(t, o)
	create(t, s, "box")
	if after := heap(); after > before+4<<20 {
		t.Fatalf("heap grew by %d bytes", after-before)
	}
	var info syscall.Stat_t
	must(t, syscall.Stat(o.Path, &info))
	if onDisk := info.Blocks * 512; onDisk > 1<<20 {
		t.Fatalf("%d bytes on disk", onDisk)
	}
}

func init() {
	children["little address space"] = openWithLittleAddressSpace
}

// openWithLittleAddressSpace limits the address space to 2 GiB more than it uses, so that 16 GiB do not fit.
func openWithLittleAddressSpace() int {
	var pages uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(statm), &pages)
	}
	limit := pages*uint64(os.Getpagesize()) + 2<<30
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit})
	}
	var s *Store
	if err == nil {
		s, err = Open(context.Background(), Options{Path: os.Getenv(pathEnv)})
	}
	if err == nil {
		_, err = s.CreateSandbox(context.Background(), "box", "", spec(), nil)
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestALimitOnAddressSpaceMapsLess(t *testing.T) {
	program := childProgram(t, "little address space")
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), pathEnv+"="+filepath.Join(t.TempDir(), "ids.db"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
