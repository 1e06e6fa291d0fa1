package template

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/buildfiles"
)

// readStore calls read after each list of the builds was read.
type readStore struct {
	Store
	builds map[string]*storev1.TemplateBuild
	read   func()
}

// TemplateBuilds implements Store.
func (s *readStore) TemplateBuilds(context.Context) (map[string]*storev1.TemplateBuild, error) {
	all := map[string]*storev1.TemplateBuild{}
	for id, b := range s.builds {
		all[id] = b
	}
	s.read()
	return all, nil
}

// CreateTemplateBuild implements Store.
func (s *readStore) CreateTemplateBuild(_ context.Context, id string, b *storev1.TemplateBuild, _ func(string, *storev1.TemplateBuild) bool) error {
	b.CreatedAt = time.Now().UnixNano()
	s.builds[id] = b
	return nil
}

// TemplateBuild implements Store.
func (s *readStore) TemplateBuild(_ context.Context, id string) (*storev1.TemplateBuild, error) {
	return s.builds[id], nil
}

// A client whose files were reported to be there uploads none.
func TestFilesThatABuildHasFoundAreNotSwept(t *testing.T) {
	const owner, name = "me", "web"
	hash, dir, id := strings.Repeat("ab", 32), t.TempDir(), idOf(owner, name)
	files := buildfiles.New(dir)
	if err := files.Save(t.Context(), id, hash, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * filesAge)
	if err := os.Chtimes(filepath.Join(dir, id, hash+".tar"), old, old); err != nil {
		t.Fatal(err)
	}
	s := &readStore{read: func() {}, builds: map[string]*storev1.TemplateBuild{
		"former": {TemplateId: id, Owner: owner, Name: name, CreatedAt: old.UnixNano(), StartedAt: old.UnixNano(), EndedAt: old.UnixNano()},
	}}
	k := New(Options{Store: s, Files: files, NoRoom: func() string { return "" }, Logger: slog.New(slog.DiscardHandler)})
	defer k.Close()
	k.swept = time.Now()
	found := make(chan bool, 1)
	build := func() {
		_, err := k.CreateTemplateBuild(t.Context(), &agboxv1.CreateTemplateBuildRequest{GatewayOwner: owner, Name: name})
		has := false
		if err == nil {
			has, err = k.HasTemplateFiles(t.Context(), owner, id, hash)
		}
		if err != nil {
			t.Error(err)
		}
		found <- has
	}
	s.read = func() {
		s.read = func() {}
		if !k.files.TryLock() {
			go build() // once the sweep is done
			return
		}
		k.files.Unlock()
		build()
	}
	if err := k.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	was := <-found
	if now, err := files.Has(id, hash); err != nil || was && !now {
		t.Errorf("the build found its files, and now: %v, %v", now, err)
	}
}
