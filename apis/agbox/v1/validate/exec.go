package validate

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Exec checks a request to run a command. An empty exec_id is valid: the daemon chooses one.
func Exec(req *agboxv1.CreateExecRequest) (errs Errors) {
	if size := proto.Size(req); size > MaxSpecBytes {
		errs.add("command", "and env_overrides are %d bytes together; the limit is %d", size, MaxSpecBytes)
		return errs
	}
	checkUnknown(&errs, "exec", req.ProtoReflect())
	if req.GetSandboxId() == "" {
		errs.add("sandbox_id", "is required")
	}
	checkCommand(&errs, req.GetCommand())
	if req.GetCwd() != "" {
		checkPath(&errs, "cwd", req.GetCwd())
	}
	checkEnvs(&errs, "env_overrides", req.GetEnvOverrides())
	if req.GetExecId() != "" {
		errs = append(errs, ExecID(req.GetExecId())...)
	}
	return errs
}

func checkCommand(errs *Errors, command []string) {
	if len(command) == 0 {
		errs.add("command", "must not be empty")
		return
	}
	if command[0] == "" {
		errs.add("command[0]", "must name a program")
	}
	for i, arg := range command {
		at := fmt.Sprintf("command[%d]", i)
		if strings.Contains(arg, "\x00") {
			errs.add(at, "must not contain a NUL byte")
		}
		if len(arg) > maxArgBytes {
			errs.add(at, "is %d bytes; the limit is %d", len(arg), maxArgBytes)
		}
	}
}
