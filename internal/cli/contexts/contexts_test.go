package contexts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agbox/agbox/internal/cli/contexts"
)

func TestUpdatesAtTheSameTimeAreAllKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agbox", "contexts.json")
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			err := contexts.Update(path, func(f *contexts.File) error {
				f.Contexts[fmt.Sprint("c", i)] = contexts.Context{Host: "/s"}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := contexts.Load(path)
	if err != nil || len(f.Contexts) != 30 {
		t.Errorf("%d contexts, %v", len(f.Contexts), err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAnUpdateThatFailsChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	refused := errors.New("no")
	if err := contexts.Update(path, func(*contexts.File) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

func TestALinkedFileStaysALink(t *testing.T) {
	dir := t.TempDir()
	kept, path := filepath.Join(dir, "kept.json"), filepath.Join(dir, "agbox", "contexts.json")
	for _, err := range []error{
		os.WriteFile(kept, []byte(`{"contexts":null}`), 0o600), os.Mkdir(filepath.Dir(path), 0o700), os.Symlink("../kept.json", path),
		contexts.Update(path, func(f *contexts.File) error { f.Contexts["a"] = contexts.Context{Host: "/s"}; return nil }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(kept)
	if err != nil || !strings.Contains(string(text), `"host": "/s"`) {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAHugeFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	if err := os.WriteFile(path, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts.Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}
