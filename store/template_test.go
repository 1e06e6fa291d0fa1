package store

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

func TestTemplateBuilds(t *testing.T) {
	o := testOptions(t)
	s := open(t, o)
	never := func(string, *storev1.TemplateBuild) bool { return false }
	must(t, s.CreateTemplateBuild(ctx, "a", &storev1.TemplateBuild{TemplateId: "t", Owner: "me", Name: "web"}, never))
	if err := s.CreateTemplateBuild(ctx, "a", &storev1.TemplateBuild{}, never); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second build of the ID: %v", err)
	}
	must(t, s.StartTemplateBuild(ctx, "a"))
	if err := s.StartTemplateBuild(ctx, "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("started twice: %v", err)
	}
	must(t, s.Close())

	s = open(t, o)
	b, err := s.TemplateBuild(ctx, "a")
	if err != nil || b.GetName() != "web" || b.GetCreatedAt() == 0 || b.GetStartedAt() == 0 || b.GetEndedAt() != 0 {
		t.Errorf("%v, %v", b, err)
	}
	must(t, s.EndTemplateBuild(ctx, "a", "it broke", 3))
	if all, err := s.TemplateBuilds(ctx); err != nil || len(all) != 1 || all["a"].GetError() != "it broke" || all["a"].GetErrorStep() != 3 || all["a"].GetEndedAt() == 0 {
		t.Errorf("%v, %v", all, err)
	}
	must(t, s.RemoveTemplateBuilds(ctx, []string{"a", "b", ""}))
	for _, err := range []error{s.StartTemplateBuild(ctx, "a"), s.EndTemplateBuild(ctx, "a", "", 0)} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("a removed build: %v", err)
		}
	}
}

// TestTemplateBuildsAreBounded: an owner's oldest record makes room for a newer one, and no other owner's.
func TestTemplateBuildsAreBounded(t *testing.T) {
	s := open(t, testOptions(t))
	add := func(id, owner string) error {
		return s.CreateTemplateBuild(ctx, id, &storev1.TemplateBuild{Owner: owner}, func(id string, _ *storev1.TemplateBuild) bool { return id != "mine-0" })
	}
	must(t, add("yours", "you"))
	for i := range maxTemplateBuilds - 1 {
		must(t, add(fmt.Sprintf("mine-%d", i), "me"))
	}
	must(t, add("one-more", "me"))
	all, err := s.TemplateBuilds(ctx)
	must(t, err)
	if len(all) != maxTemplateBuilds || all["yours"] == nil || all["mine-0"] == nil || all["mine-1"] != nil || all["one-more"] == nil {
		t.Errorf("%d builds are left", len(all))
	}
	if err := add("too-many", "nobody"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("an owner without builds: %v", err)
	}
}
