package server

import (
	"testing"

	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestShowOlderKnowsEveryResponse fills the responses of all methods, and fails if one keeps a state that older clients do not know.
func TestShowOlderKnowsEveryResponse(t *testing.T) {
	filled := 0
	for _, file := range []protoreflect.FileDescriptor{agboxv1.File_agbox_v1_sandbox_proto, agboxv1.File_agbox_v1_agent_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				output, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(j).Output().FullName())
				if err != nil {
					t.Fatal(err)
				}
				m := output.New()
				fill(m, 4)
				if len(newer(t, m)) > 0 {
					filled++
				}
				showOlder(m.Interface())
				for _, path := range newer(t, m) {
					t.Errorf("showOlder leaves %s", path)
				}
			}
		}
	}
	if filled < 6 {
		t.Errorf("only %d responses have a state", filled)
	}
}

// fill sets all states in a message to PAUSED.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.Enum() != nil && f.Enum().Name() == "SandboxState":
			m.Set(f, protoreflect.ValueOfEnum(agboxv1.SandboxState_SANDBOX_STATE_PAUSED.Number()))
		case f.Message() == nil || f.IsMap() || f.ContainingOneof() != nil || depth == 0:
		case f.IsList():
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		default:
			fill(m.Mutable(f).Message(), depth-1)
		}
	}
}

// newer returns the paths of the states that older clients do not know.
func newer(t *testing.T, m protoreflect.Message) (paths []string) {
	err := protorange.Range(m, func(p protopath.Values) error {
		n, ok := p.Index(-1).Value.Interface().(protoreflect.EnumNumber)
		if ok && n >= agboxv1.FirstAddition {
			paths = append(paths, p.Path.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
