package manifest_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/manifest"
)

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawSpec(t, "a"), drawSpec(t, "b"), drawSpec(t, "c")
		wasA, wasB := proto.CloneOf(a), proto.CloneOf(b)
		ab := manifest.Merge(a, b)
		same(t, "the base is left as it was", a, wasA)
		same(t, "the override is left as it was", b, wasB)
		same(t, "nothing over a spec is the spec", manifest.Merge(a, nil), a)
		same(t, "a spec over nothing is the spec", manifest.Merge(nil, a), a)
		same(t, "a spec over itself is the spec", manifest.Merge(a, a), a)
		same(t, "twice is once", manifest.Merge(ab, b), ab)
		same(t, "grouping does not matter", manifest.Merge(ab, c), manifest.Merge(a, manifest.Merge(b, c)))
		checkFields(t, a, b, ab)
	})
}

// checkFields checks each field of a merge against its rule.
func checkFields(t *rapid.T, base, over, got *agboxv1.CreateSpec) {
	fields := got.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		want := base.ProtoReflect()
		if over.ProtoReflect().Has(fd) {
			want = over.ProtoReflect()
		}
		if fd.IsMap() {
			checkUnion(t, base.ProtoReflect().Get(fd).Map(), over.ProtoReflect().Get(fd).Map(), got.ProtoReflect().Get(fd).Map())
		} else if want.Has(fd) != got.ProtoReflect().Has(fd) || !want.Get(fd).Equal(got.ProtoReflect().Get(fd)) {
			t.Fatalf("%s: got %v, want %v", fd.TextName(), got.ProtoReflect().Get(fd), want.Get(fd))
		}
	}
}

func checkUnion(t *rapid.T, base, over, got protoreflect.Map) {
	common := 0
	base.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if over.Has(key) {
			common++
		} else if !got.Get(key).Equal(value) {
			t.Fatalf("lost or changed %q", key)
		}
		return true
	})
	over.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if !got.Get(key).Equal(value) {
			t.Fatalf("%q is not the override's", key)
		}
		return true
	})
	if want := base.Len() + over.Len() - common; got.Len() != want {
		t.Fatalf("%d keys, want %d", got.Len(), want)
	}
}

func same(t *rapid.T, rule string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Fatalf("%s: got\n%v\nwant\n%v", rule, got, want)
	}
}
