package manifest_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/manifest"
)

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../config/examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	shown, shownAgent := &agboxv1.CreateSpec{}, &agboxv1.AgentSpec{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := manifest.Parse(text, "/home/u")
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, doc := range docs {
			if doc.Agent != nil {
				checkAgent(t, file, doc)
				proto.Merge(shownAgent, doc.Agent)
				continue
			}
			if errs := append(validate.Create(doc.Spec), validate.Name(doc.Name)...); len(errs) > 0 {
				t.Errorf("%s: %v", file, errs)
			}
			readBack(t, doc.Spec)
			proto.Merge(shown, doc.Spec)
		}
	}
	// Few engines support these, few users need them, or a gateway sets them.
	showsAll(t, shown, "disk_limit", "gpus", "runtime", "pull_policy", "gateway", "keep_stopped", "default_user", "network")
	showsAll(t, shownAgent, "ready", "desired_state", "start_timeout")
}

func checkAgent(t *testing.T, file string, doc manifest.Document) {
	t.Helper()
	if errs := append(validate.Agent(doc.Agent), validate.Name(doc.Name)...); len(errs) > 0 {
		t.Errorf("%s: %v", file, errs)
	}
	readAgentBack(t, doc.Agent)
}

func showsAll(t *testing.T, shown proto.Message, but ...protoreflect.Name) {
	t.Helper()
	fields := shown.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); !slices.Contains(but, fd.Name()) && !shown.ProtoReflect().Has(fd) {
			t.Errorf("no example shows %s of %s", fd.Name(), fd.Parent().Name())
		}
	}
}
