package template

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/buildfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

const (
	// defaultUser is that of steps and of commands in sandboxes, unless a step sets another; its home is where both start.
	defaultUser = "user"
	defaultDir  = "/home/" + defaultUser
	rootUser    = "root"
	// maxSteps bounds the steps of a build. The engine's storage driver has at most 125 layers for an image.
	maxSteps = 100
	// maxLine is below the longest line that the engine's parser reads, 64 KiB.
	maxLine = 60 << 10
)

var (
	userPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	modePattern = regexp.MustCompile(`^[0-7]{3,4}$`)
)

// makeUser adds the default user to the tables of the image if they lack it, and makes its home. $0 is the user, $1 its number, $2 its group's.
// It uses little more than a shell, as images may have nothing else.
const makeUser = `set -e
has() { [ -e "$1" ] || : > "$1"; while IFS=: read -r name rest; do [ "$name" = "$2" ] && return 0; done < "$1"; return 1; }
first() { { printf '%s\n' "$2"; cat "$1"; } > "$1.new"; cat "$1.new" > "$1"; rm "$1.new"; }
mkdir -p /etc "/home/$0"
shell=/bin/sh; [ ! -x /bin/bash ] || shell=/bin/bash
if ! has /etc/passwd "$0"; then
  has /etc/group "$0" || first /etc/group "$0:*:$2:"
  first /etc/passwd "$0:*:$1:$2:$0:/home/$0:$shell"
fi
chown "$0" "/home/$0"`

// makeDir makes a directory for a user. $0 is its path, $1 the user.
const makeDir = `[ -d "$0" ] || { mkdir -p "$0" && chown "$1" "$0"; }`

// runShell runs a command line as the SDK's commands run in a sandbox. $0 is the line.
const runShell = `if [ -x /bin/bash ]; then exec /bin/bash -l -c "$0"; fi; exec /bin/sh -c "$0"`

// source is the archive of a COPY step. Its entries are below a directory of the context that is named by the index of the step.
type source struct {
	step int
	hash string
	mode int64 // of the files; < 0: as in the archive
}

// recipe is a generated Dockerfile with what it needs.
type recipe struct {
	lines   []string
	steps   []uint32 // by line: the index of the step plus 1; 0: none
	titles  []string // by step
	sources []source
	user    string
	dir     string
}

// options are what a recipe depends on beside its steps.
type options struct {
	from     string // the ID of an image
	instance string
	owner    string
	build    string
	uid, gid int
}

// invalid is an error of a step.
func invalid(step int, format string, args ...any) error {
	message := fmt.Sprintf("step %d: ", step+1) + fmt.Sprintf(format, args...)
	return &store.Refusal{Reason: "INVALID_SPEC", Class: errdefs.ErrInvalidArgument, Message: message, Metadata: map[string]string{"field": fmt.Sprintf("steps[%d]", step)}}
}

// newRecipe returns the Dockerfile of a build. Its first lines are the same for all builds of an owner on an image, so that the engine finds their results
// in its cache; the labels make the images of all steps found. Errors: a Refusal INVALID_SPEC that names the step.
func newRecipe(req *agboxv1.StartTemplateBuildRequest, o options) (*recipe, error) {
	r := &recipe{user: defaultUser, dir: defaultDir}
	if len(req.GetSteps()) > maxSteps {
		return nil, invalid(maxSteps, "a build has at most %d steps; join commands with &&", maxSteps)
	}
	r.add(0, "FROM "+o.from)
	r.add(0, "LABEL "+naming.BuildLayer+"="+quoted(o.instance))
	r.add(0, "LABEL "+naming.BuildOwner+"="+quoted(o.owner)) // so that no owner gets results of another one from the cache
	if len(req.GetSteps()) > 0 {
		r.add(0, "USER "+rootUser)
		r.add(0, "RUN "+list("/bin/sh", "-c", makeUser, defaultUser, strconv.Itoa(o.uid), strconv.Itoa(o.gid)))
		r.add(0, "USER "+r.user)
		r.add(0, "WORKDIR "+r.dir)
	}
	fresh := false
	for i, step := range req.GetSteps() {
		if (step.GetForce() || req.GetFresh()) && !fresh {
			fresh = true
			r.add(i+1, "LABEL "+naming.BuildFresh+"="+quoted(o.build)) // no cache has this layer, nor one on it
		}
		r.titles = append(r.titles, strings.Join(append([]string{step.GetType()}, step.GetArgs()...), " "))
		if err := r.step(i, step); err != nil {
			return nil, err
		}
	}
	for i, line := range r.lines {
		if len(line) > maxLine {
			return nil, invalid(max(int(r.steps[i])-1, 0), "is longer than %d bytes; copy a script instead", maxLine)
		}
	}
	return r, nil
}

func (r *recipe) add(step int, line string) {
	r.lines = append(r.lines, line)
	r.steps = append(r.steps, uint32(step)) //nolint:gosec // bounded by maxSteps
}

func (r *recipe) step(i int, step *agboxv1.TemplateStep) error {
	args := step.GetArgs()
	arg := func(n int) string {
		if n < len(args) {
			return args[n]
		}
		return ""
	}
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return invalid(i, "has a zero byte")
		}
	}
	switch step.GetType() {
	case "RUN":
		return r.run(i, arg(0), arg(1), len(args))
	case "COPY":
		return r.copy(i, step)
	case "ENV":
		return r.env(i, args)
	case "USER":
		if len(args) != 1 || !userPattern.MatchString(arg(0)) {
			return invalid(i, "USER: %q is no user", arg(0))
		}
		r.user = arg(0)
		r.add(i+1, "USER "+r.user)
	case "WORKDIR":
		return r.workdir(i, arg(0), len(args))
	default:
		return invalid(i, "%s is not supported by agbox; write RUN, COPY, ENV, USER or WORKDIR", step.GetType())
	}
	return nil
}

func (r *recipe) run(i int, command, user string, n int) error {
	if n < 1 || n > 2 || command == "" {
		return invalid(i, "RUN has a command and at most a user")
	}
	if user != "" && !userPattern.MatchString(user) {
		return invalid(i, "RUN: %q is no user", user)
	}
	other := user != "" && user != r.user
	if other {
		r.add(i+1, "USER "+user)
	}
	r.add(i+1, "RUN "+list("/bin/sh", "-c", runShell, command))
	if other {
		r.add(i+1, "USER "+r.user)
	}
	return nil
}

func (r *recipe) env(i int, args []string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return invalid(i, "ENV has names, each with a value")
	}
	for n := 0; n < len(args); n += 2 {
		if !namePattern.MatchString(args[n]) {
			return invalid(i, "ENV: %q is no name of a variable", args[n])
		}
		if strings.ContainsAny(args[n+1], "\r\n") {
			return invalid(i, "ENV: the value of %s has a line break, which the engine's builder does not support", args[n])
		}
		r.add(i+1, "ENV "+args[n]+"="+quoted(args[n+1]))
	}
	return nil
}

func (r *recipe) workdir(i int, dir string, n int) error {
	if n != 1 || dir == "" || strings.ContainsAny(dir, "\r\n") || strings.TrimSpace(dir) != dir || strings.HasSuffix(dir, `\`) {
		return invalid(i, "WORKDIR: %q is no directory", dir)
	}
	r.dir = path.Join("/", r.dir, dir)
	if path.IsAbs(dir) {
		r.dir = path.Clean(dir)
	}
	if r.user != rootUser { // the engine would make it for root
		r.add(i+1, "USER "+rootUser)
		r.add(i+1, "RUN "+list("/bin/sh", "-c", makeDir, r.dir, r.user))
		r.add(i+1, "USER "+r.user)
	}
	r.add(i+1, "WORKDIR "+word(r.dir))
	return nil
}

func (r *recipe) copy(i int, step *agboxv1.TemplateStep) error {
	args := append(append([]string(nil), step.GetArgs()...), "", "", "", "")
	src, dest, user, mode := args[0], args[1], args[2], args[3]
	if len(step.GetArgs()) < 2 || len(step.GetArgs()) > 4 || src == "" || dest == "" {
		return invalid(i, "COPY has a source, a destination and at most an owner and a mode")
	}
	if strings.ContainsAny(src+dest, "\r\n") {
		return invalid(i, "COPY: a path has a line break")
	}
	if !buildfiles.IsHash(step.GetFilesHash()) {
		return invalid(i, "COPY: filesHash is not 64 lowercase hexadecimal digits")
	}
	clean, err := inside(src)
	if err != nil {
		return invalid(i, "COPY: %v", err)
	}
	if strings.Contains(src, "**") {
		return invalid(i, "COPY: %q: ** is not supported by agbox; copy the directory", src)
	}
	if user != "" && !userPattern.MatchString(user) {
		return invalid(i, "COPY: %q is no user", user)
	}
	s := source{step: i, hash: step.GetFilesHash(), mode: -1}
	if mode != "" {
		if !modePattern.MatchString(mode) {
			return invalid(i, "COPY: %q is no mode; write 0755", mode)
		}
		s.mode, _ = strconv.ParseInt(mode, 8, 64) // the pattern allows nothing else
	}
	r.sources = append(r.sources, s)
	owner := user
	if owner == "" {
		owner = r.user
	}
	chown := ""
	if owner != rootUser {
		chown = "--chown=" + owner + " "
	}
	r.add(i+1, "COPY "+chown+list(word(strconv.Itoa(i)+"/"+clean), word(dest)))
	return nil
}

// inside returns a path of the context in its shortest form. Errors: one that leads out of it.
func inside(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("the path %q leads out of the context", name)
	}
	return clean, nil
}

// list is the JSON form of an instruction's arguments, which the engine does not parse further in RUN.
func list(args ...string) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(args) // strings encode
	return strings.TrimSuffix(out.String(), "\n")
}

// word escapes what the engine's builder would take for quotes, escapes and variables.
func word(s string) string {
	return strings.NewReplacer(`\`, `\\`, `$`, `\$`, `"`, `\"`, `'`, `\'`).Replace(s)
}

// quoted is a value in double quotes, in which the engine's builder finds no variables.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `$`, `\$`, `"`, `\"`).Replace(s) + `"`
}
