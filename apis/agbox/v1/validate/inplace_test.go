package validate_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// The page that users read marks the fields that the code lets change.
func TestTheDocumentationMarksWhatChangesInPlace(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	var marked, fields []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\| (.*)$").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(row[2], "(*in place*)") {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			marked = append(marked, name[1])
		}
	}
	eachField((&agboxv1.CreateSpec{}).ProtoReflect().Descriptor(), func(fd protoreflect.FieldDescriptor) {
		if validate.InPlace(fd) {
			fields = append(fields, fd.TextName())
		}
	})
	slices.Sort(marked)
	slices.Sort(fields)
	if !slices.Equal(marked, fields) {
		t.Errorf("docs/sandbox.md marks %q, the code lets %q change", marked, fields)
	}
	eachField((&agboxv1.ServiceSpec{}).ProtoReflect().Descriptor(), func(fd protoreflect.FieldDescriptor) {
		if validate.InPlace(fd) && !slices.Contains(fields, fd.TextName()) {
			t.Errorf("%s changes in services and not in sandboxes: the page says \"as above\"", fd.TextName())
		}
	})
}

func eachField(m protoreflect.MessageDescriptor, do func(protoreflect.FieldDescriptor)) {
	for i := range m.Fields().Len() {
		do(m.Fields().Get(i))
	}
}
