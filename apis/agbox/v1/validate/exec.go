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
	checkCommand(&errs, "command", req.GetCommand())
	if req.GetCwd() != "" {
		checkPath(&errs, "cwd", req.GetCwd())
	}
	checkEnvs(&errs, "env_overrides", req.GetEnvOverrides())
	if req.GetExecId() != "" {
		errs = append(errs, ExecID(req.GetExecId())...)
	}
	return errs
}

func checkCommand(errs *Errors, field string, command []string) {
	if len(command) == 0 {
		errs.add(field, "must not be empty")
		return
	}
	if command[0] == "" {
		errs.add(field+"[0]", "must name a program")
	}
	for i, arg := range command {
		checkArg(errs, fmt.Sprintf("%s[%d]", field, i), arg)
	}
}

// checkArg checks what becomes one argument of a program.
func checkArg(errs *Errors, field, arg string) {
	if strings.Contains(arg, "\x00") {
		errs.add(field, "must not contain a NUL byte")
	}
	if len(arg) > maxArgBytes {
		errs.add(field, "is %d bytes; the limit is %d", len(arg), maxArgBytes)
	}
}
