package server

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Of all RPCs, those that change nothing are not recorded.
func TestWhatIsRecorded(t *testing.T) {
	for method, want := range map[string]bool{
		agboxv1.SandboxService_Ping_FullMethodName: false, agboxv1.SandboxService_GetSandbox_FullMethodName: false,
		agboxv1.SandboxService_ListExecs_FullMethodName: false, agboxv1.SandboxService_SubscribeSandboxEvents_FullMethodName: false,
		agboxv1.AdminService_Explain_FullMethodName: false, agboxv1.AdminService_Doctor_FullMethodName: false, agboxv1.SandboxService_CreateExec_FullMethodName: true,
		agboxv1.SandboxService_DeleteSandboxes_FullMethodName: true, agboxv1.AdminService_Backup_FullMethodName: true,
		agboxv1.AdminService_Drain_FullMethodName: true, agboxv1.AgentService_PromptAgent_FullMethodName: true,
	} {
		if got := recorded(method); got != want {
			t.Errorf("%s: %t", method, got)
		}
	}
}

func TestObjectsOfARequest(t *testing.T) {
	got := objectsOf((&agboxv1.CreateSandboxRequest{SandboxId: "abcd", Name: strings.Repeat("n", 1<<20), ConfigYaml: []byte("secret")}).ProtoReflect())
	if isDryRun((&agboxv1.CreateSandboxRequest{}).ProtoReflect()) || !isDryRun((&agboxv1.CreateSandboxRequest{DryRun: true}).ProtoReflect()) {
		t.Error("a dry run changes nothing, everything else may")
	}
	if len(got) != 4 || got[1] != "abcd" || len(got[3].(string)) != maxObject {
		t.Errorf("got %.200v", got)
	}
}
