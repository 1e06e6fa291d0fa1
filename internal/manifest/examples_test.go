package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/manifest"
)

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../config/examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	shown := &agboxv1.CreateSpec{}
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
			if errs := append(validate.Create(doc.Spec), validate.Name(doc.Name)...); len(errs) > 0 {
				t.Errorf("%s: %v", file, errs)
			}
			readBack(t, doc.Spec)
			proto.Merge(shown, doc.Spec)
		}
	}
	fields := shown.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		switch fd := fields.Get(i); fd.Name() {
		case "disk_limit", "gpus", "runtime", "pull_policy": // few engines have these, or few users need them
		default:
			if !shown.ProtoReflect().Has(fd) {
				t.Errorf("no example shows %s", fd.Name())
			}
		}
	}
}
