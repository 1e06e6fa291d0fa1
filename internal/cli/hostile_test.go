package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox/agbox/client"
)

const (
	// evilOutput is what a sandbox writes: it clears the screen, sets the title and the clipboard, and turns text around.
	evilOutput = "\x1b[2J\x1b]0;x\x07\x1b]52;c;cm0gLXJm\x1b\\\u009b2J\x7f\x00\u202etxt\u2066\u200b\ufeff\u2028\U000e0041\x80\xff"
	// evil is a text of a record. Its colours and carriage returns would be allowed in output.
	evil = "\x1b[35m\r\u202ex\u061c\u200f \x1b[2J\u009d0;x\u009c\x7f\b\u2029\u00ad\u200b\u200d\u2060\U000e0041\nsandbox/web ready"
)

// hostile is a daemon whose answers have evil texts in every field that is no name. Each answer differs from the one before in its enums,
// booleans and alternatives.
type hostile struct{ answers atomic.Int64 }

// names are the fields with which a verb finds what it was asked for.
var names = map[protoreflect.Name]bool{
	"name": true, "sandbox_id": true, "exec_id": true, "agent_id": true, "prompt_id": true, "snapshot_id": true, "template_id": true, "key_id": true,
	"volume_name": true, "sandbox_name": true, "owner": true,
}

func fill(m protoreflect.Message, n int64, depth int) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		v.Seconds = time.Now().Unix() + 1
		return
	case *durationpb.Duration:
		v.Seconds = 60
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() && of.Fields().Get(int(n)%of.Fields().Len()) != fd {
			continue
		}
		isMessage := fd.Message() != nil
		switch {
		case isMessage && depth == 0:
		case fd.IsMap():
			key := protoreflect.ValueOf(evil + fd.MapKey().Kind().String())
			value := m.Mutable(fd).Map().NewValue()
			if fd.MapValue().Message() != nil {
				fill(value.Message(), n, depth-1)
			} else {
				value = scalar(fd.MapValue(), n)
			}
			if fd.MapKey().Kind() == protoreflect.StringKind {
				m.Mutable(fd).Map().Set(key.MapKey(), value)
			}
		case fd.IsList() && isMessage:
			fill(m.Mutable(fd).List().AppendMutable().Message(), n, depth-1)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd, n))
		case isMessage:
			fill(m.Mutable(fd).Message(), n, depth-1)
		default:
			m.Set(fd, scalar(fd, n))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor, n int64) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		switch {
		case strings.HasSuffix(string(fd.Name()), "page_token"):
			return protoreflect.ValueOf("")
		case names[fd.Name()]:
			return protoreflect.ValueOf("web")
		}
		return protoreflect.ValueOf(evil)
	case protoreflect.BytesKind:
		return protoreflect.ValueOf([]byte(evilOutput))
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOf(values.Get(int(n) % values.Len()).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(n%2 == 1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOf(float32(1))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOf(float64(1))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOf(int32(1))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOf(uint32(1))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOf(uint64(n + 1)) // sequences grow
	}
	return protoreflect.ValueOf(int64(1))
}

func (h *hostile) answer(reply any) { fill(reply.(proto.Message).ProtoReflect(), h.answers.Add(1), 5) }

// Invoke implements grpc.ClientConnInterface. Every eighth answer is an error.
func (h *hostile) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if h.answer(reply); h.answers.Load()%8 == 7 {
		return status.Error(codes.FailedPrecondition, evil)
	}
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (h *hostile) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &hostileStream{ctx: ctx, h: h}, nil
}

// hostileStream has many answers and then an error.
type hostileStream struct {
	ctx  context.Context //nolint:containedctx // as gRPC's
	h    *hostile
	sent int
}

func (s *hostileStream) Header() (grpcmetadata.MD, error) { return nil, nil }
func (s *hostileStream) Trailer() grpcmetadata.MD         { return nil }
func (s *hostileStream) CloseSend() error                 { return nil }
func (s *hostileStream) Context() context.Context         { return s.ctx }
func (s *hostileStream) SendMsg(any) error                { return nil }
func (s *hostileStream) RecvMsg(m any) error {
	if s.sent++; s.sent > 60 {
		return status.Error(codes.InvalidArgument, evil)
	}
	s.h.answer(m)
	return nil
}

// lines are command lines of every verb. Those that need no daemon, and whose input is the user's own, have none.
func lines(dir string) map[string][]string {
	manifest := filepath.Join(dir, "m.yaml")
	return map[string][]string{
		"agent attach": {"web"}, "agent checkpoint": {"web"}, "agent conversation": {"web", "web -o json", "web --as-context"},
		"agent create": {"web --sandbox web -- claude"}, "agent delete": {"web"}, "agent describe": {"web"},
		"agent get": {"", "-o wide", "-o json", "-o yaml", "-o name", "-w"}, "agent list": {""}, "agent interrupt": {"web"},
		"agent move": {"web web"}, "agent prompt": {"web hello", "web hello --wait"}, "agent redeliver": {"web", "web web"}, "agent start": {"web"}, "agent stop": {"web"},
		"agent transitions": {"web", "web -o json"}, "agent withdraw": {"web", "web web"},
		"apply":  {"-f " + manifest, "-f " + manifest + " --wait", "-f " + manifest + " -o yaml", "-f " + manifest + " --dry-run"},
		"attach": {"web"}, "backup": {filepath.Join(dir, "b")}, "cancel": {"web"}, "cat": {"web /x"},
		"context": nil, "context create": nil, "context ls": {"", "-o json"}, "context rm": nil, "context show": nil, "context use": nil, "completion": nil, "backup verify": nil,
		"cp": {"web:/x " + filepath.Join(dir, "out"), manifest + " web:/x", "web:/d/ " + filepath.Join(dir, "tree")}, "delete": {"web", "-l a=b"}, "describe": {"web", "exec/web"},
		"diff": {"-f " + manifest}, "doctor": {"", "-o json", "--attack web"}, "drain": {"", "--wait"}, "drain status": {"", "-o json"},
		"e2b env": {"--owner web"}, "e2b keys create": {"web"}, "e2b keys ls": {"", "-o json"}, "e2b keys rm": {"web"}, "edit": {"web /x"}, "engine confirm": {"", "-o json"},
		"events": {"web", "web -o json", "web -f"}, "exec": {"web ls", "web -d ls"}, "execs": {"", "web", "-o json", "-o wide"}, "explain": {"web", "agent web", "web -o json"},
		"gc": {"", "-o json", "--dry-run"}, "get": {"", "web", "-o wide", "-o json", "-o yaml", "-o name", "-w", "-o jsonpath={.items[*].status}", "-o go-template={{.}}"},
		"network": {"web", "web --learn", "web -o json", "web -o yaml"},
		"logs":    {"web", "web --service web", "web --timestamps", "web -f"}, "ls": {"web", "web / -l"}, "pause": {"web"}, "port-forward": {"web 0:80"}, "resume": {"web"},
		"run": {"debian:13", "debian:13 -- ls", "debian:13 --rm -- ls"}, "snapshot create": {"web", "web s1"}, "snapshot ls": {"", "-o json"}, "snapshot rm": {"web"}, "stop": {"web"},
		"template ls": {"", "-o json"}, "template rm": {"web"}, "timeout": {"web 5m", "web never"}, "top": {"", "-w", "-o json", "-o wide"},
		"undrain": {""}, "version": {"", "-o json"}, "volume ls": {"", "-o json"}, "volume rm": {"web/web"}, "wait": {"web", "web --for deleted", "exec/web"},
	}
}

// ours are the control sequences of this program.
var ours = strings.NewReplacer("\r\x1b[K", "", "\x1b[H\x1b[J", "", "\x1b[32m", "", "\x1b[31m", "", "\x1b[2m", "", "\x1b[33m", "", "\x1b[0m", "")

// Whatever the records of a daemon say, and in whatever form a verb prints them, a terminal shows it and obeys nothing.
func TestNoVerbPrintsWhatATerminalObeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("EDITOR", "cat")
	text := "apiVersion: agbox/v1\nkind: Sandbox\nmetadata: {name: web}\nspec: {image: debian:13}\n"
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &hostile{}
	all, printed := lines(dir), 0
	for _, verb := range leaves((&app{}).rootCommand()) {
		argLists, listed := all[verb]
		if !listed {
			t.Errorf("%q is not in lines", verb)
		}
		for _, args := range argLists {
			t.Run(strings.TrimSpace(verb+" "+args), func(t *testing.T) {
				for range 9 { // each with the next answers
					got := h.run(t, append(strings.Fields(verb), strings.Fields(args)...))
					printed += len(got)
					if i := strings.IndexFunc(ours.Replace(got), harms); i >= 0 {
						t.Fatalf("it prints %q", ours.Replace(got)[max(0, i-40):])
					}
				}
			})
		}
	}
	if printed < 100_000 {
		t.Errorf("all verbs together print %d bytes", printed)
	}
}

// leaves are the verbs, by their words.
func leaves(c *cobra.Command) (list []string) {
	if _, words, _ := strings.Cut(c.CommandPath(), " "); c.Runnable() && words != "" && !c.HasSubCommands() || words == "drain" || words == "backup" {
		list = append(list, words)
	}
	for _, sub := range c.Commands() {
		list = append(list, leaves(sub)...)
	}
	return list
}

// run returns what a command line prints to a terminal.
func (h *hostile) run(t *testing.T, args []string) string {
	t.Helper()
	master, terminal := openTerminal(t, 200)
	raw(t, terminal)
	var got bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&got, master) // it ends with an error, once the terminal is closed
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a := &app{version: "v1", conn: func() *client.Client { return client.New(h) }}
	a.execute(ctx, args, Streams{In: strings.NewReader("hello\n"), Out: terminal, Err: terminal})
	_ = terminal.Close()
	<-read
	return got.String()
}
