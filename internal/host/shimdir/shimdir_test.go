package shimdir

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheShimIsInstalledByContentWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	data, source := t.TempDir(), filepath.Join(t.TempDir(), "shim")
	install := func(body string) string {
		t.Helper()
		if err := os.WriteFile(source, []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := Install(source, data)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one := install("one")
	if again := install("one"); again != one {
		t.Errorf("the same shim went to %s and %s", one, again)
	}
	two := install("two")
	for dir, want := range map[string]string{one: "one", two: "two"} {
		body, err := os.ReadFile(filepath.Join(dir, Name))
		if err != nil || string(body) != want {
			t.Errorf("%s holds %q, %v", dir, body, err)
		}
		for _, path := range []string{dir, filepath.Join(dir, Name)} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}

// TestAnInstalledShimIsNotTouched: with a used-up quota btrfs refuses any change, even a chmod to the same mode.
func TestAnInstalledShimIsNotTouched(t *testing.T) {
	data, source := t.TempDir(), filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(source, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	changed := func(path string) syscall.Timespec {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ctim
	}
	install := func() string {
		t.Helper()
		dir, err := Install(source, data)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := install()
	before := changed(dir)
	for probe := filepath.Join(data, "probe"); ; { // until a change has another time
		if err := os.WriteFile(probe, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if changed(probe) != before {
			break
		}
	}
	install()
	if after := changed(dir); after != before {
		t.Errorf("%s was changed at %v, and again at %v", dir, before, after)
	}
}

func TestAMissingShimIsNamed(t *testing.T) {
	_, err := Find("")
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}
