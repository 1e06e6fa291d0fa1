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

func TestAMissingShimIsNamed(t *testing.T) {
	_, err := Find("")
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}
