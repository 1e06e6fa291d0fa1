package client_test

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// brittle is a file "abcd" whose streams break after two bytes. The file has the next of the versions each time that it is opened.
type brittle struct {
	agboxv1.UnimplementedFileServiceServer
	versions []string
}

func (b *brittle) ReadFile(req *agboxv1.ReadFileRequest, to grpc.ServerStreamingServer[agboxv1.ReadFileResponse]) error {
	version := b.versions[0]
	b.versions = b.versions[1:]
	data := "abcd"[req.GetOffset():]
	first := &agboxv1.ReadFileResponse{Entry: &agboxv1.FileEntry{Version: version}, Data: []byte(data[:2])}
	if err := to.Send(first); err != nil || len(data) == 2 {
		return err
	}
	return status.Error(codes.Unavailable, "cut off")
}

func TestAReadThatWasCutOffContinuesOnlyInTheSameFile(t *testing.T) {
	for version, want := range map[string]struct {
		read   string
		code   codes.Code
		reason string
	}{
		"1": {"abcd", codes.OK, ""},
		"2": {"ab", codes.Aborted, client.ReasonFileChanged},
		"":  {"ab", codes.Unavailable, ""}, // of a sandbox that has stopped meanwhile
	} {
		c := serve(t, client.Options{Patience: 5 * time.Second}, func(to grpc.ServiceRegistrar) {
			agboxv1.RegisterFileServiceServer(to, &brittle{versions: []string{"1", version}})
		})
		f, err := c.OpenFile(context.Background(), &agboxv1.ReadFileRequest{SandboxId: "abcd", Path: "/f"})
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(f)
		if string(read) != want.read || client.Code(err) != want.code || client.Reason(err) != want.reason {
			t.Errorf("version %q: read %q, %v", version, read, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
