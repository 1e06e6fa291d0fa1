package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// runLabel is the label of sandboxes made by run; its value is their name, as in kubectl.
	runLabel = "run"
	// leaseLength is the timeout of a sandbox with --rm. It is longer than a restart of the daemon.
	leaseLength = 15 * time.Minute
	leaseRenew  = time.Minute
	// removePatience is how long run tries to request the delete of --rm.
	removePatience = 30 * time.Second
)

type runOptions struct {
	name, memory, cpus, user, dir, network string
	snapshot                               string
	envs, mounts, ports, labels            []string
	remove, detach                         bool
	timeout                                time.Duration
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	var interactive, tty bool // users of other tools try them; refused with a reason
	cmd := &cobra.Command{
		Use: "run (IMAGE | --snapshot ID) [-- COMMAND [ARG...]]", SuggestFor: []string{"start"}, Short: "Create a sandbox from an image or a snapshot and run a command in it",
		Long: `Create a sandbox from an image or a snapshot without a manifest, wait until it is READY, and run a command in it. The exit code is that of
"agbox exec". The sandbox stays, also when this program is killed: more commands run with "agbox exec", and "agbox delete" removes it.
"agbox get NAME -o yaml" prints its manifest.

With --rm, the sandbox is deleted at the end, also after ^C. It has a timeout that this program extends as long as it lives: if it is
killed, the daemon deletes the sandbox within 15 minutes. Named volumes stay.`,
		Example: "  agbox run agbox-dev:dev\n  agbox run --snapshot tools-installed -- node --version\n  agbox run --rm agbox-dev:dev -- python3 -c 'print(6 * 7)'\n" +
			"  agbox run --name web -v ./site:/workspace/site:ro -p 8080:8000 --memory 512m agbox-dev:dev -d -- python3 -m http.server",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			image, command, err := o.imageAndCommand(cmd, args)
			if err != nil {
				return err
			}
			if interactive || tty {
				return usagef(cmd, "-i and -t are not supported: run the sandbox without -i and -t, then \"agbox exec -it NAME -- sh\"")
			}
			t, err := a.target()
			if err != nil {
				return err
			}
			req, err := o.request(cmd, image, t.remote())
			if err != nil {
				return err
			}
			if o.snapshot != "" {
				if req.CreateSpec.Image, err = a.snapshotImage(cmd.Context(), o.snapshot); err != nil {
					return notRun(cmd.Context(), err)
				}
			}
			return a.run(cmd, req, command, o)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&o.name, "name", "", "name of the sandbox (default made from the image)")
	cmd.Flags().StringVar(&o.snapshot, "snapshot", "", "ID of a snapshot, in place of an image")
	onFlag(cmd, "snapshot", a.snapshotIDs)
	cmd.Flags().BoolVar(&o.remove, "rm", false, "delete the sandbox when the command has ended")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "do not wait: with a command print the exec's ID when it was started, else return when the sandbox is accepted")
	cmd.Flags().StringArrayVarP(&o.envs, "env", "e", nil, "KEY=VALUE, or KEY for the value that it has here; repeatable")
	cmd.Flags().StringArrayVarP(&o.mounts, "volume", "v", nil, "SOURCE:TARGET[:ro]: a path of the daemon's host, or the name of a volume; repeatable")
	cmd.Flags().StringArrayVarP(&o.ports, "publish", "p", nil, "[HOST_PORT:]PORT[/udp], on 127.0.0.1; repeatable")
	cmd.Flags().StringVar(&o.memory, "memory", "", "memory limit, such as 512m")
	cmd.Flags().StringVar(&o.network, "network", "", "what it reaches: internet, internal, none or open (default: the daemon's runtime.network_mode)")
	cmd.Flags().StringVar(&o.cpus, "cpus", "", "CPU limit, such as 1.5")
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "user of commands: name, uid, name:group or uid:gid")
	cmd.Flags().StringVarP(&o.dir, "workdir", "w", "", "directory of commands (default /workspace)")
	cmd.Flags().StringArrayVarP(&o.labels, "label", "l", nil, "KEY=VALUE; repeatable")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, defaultWait), "timeout", "give up waiting for READY after this long")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "")
	for _, hidden := range []string{"interactive", "tty"} {
		cmd.Flags().Lookup(hidden).Hidden = true
	}
	return cmd
}

// imageAndCommand returns the image, or the ID of a snapshot, and the command. As in exec, flags of agbox may stand between the two, and "--" is optional.
func (o *runOptions) imageAndCommand(cmd *cobra.Command, args []string) (image string, command []string, err error) {
	both := usagef(cmd, "expected an image or --snapshot, not both")
	switch {
	case o.snapshot != "" && len(args) > 1 && args[1] == "--": // parsing has stopped at the first argument
		return "", nil, both
	case o.snapshot != "":
		return bareSnapshot(o.snapshot), args, nil
	}
	if len(args) == 0 || args[0] == "" || cmd.ArgsLenAtDash() == 0 {
		return "", nil, usagef(cmd, "expected an image or --snapshot, and perhaps a command")
	}
	if cmd.ArgsLenAtDash() > 0 {
		return args[0], args[1:], nil
	}
	if err := cmd.ParseFlags(args[1:]); err != nil {
		return "", nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if o.snapshot != "" {
		return "", nil, both
	}
	return args[0], cmd.Flags().Args(), nil
}

// request is the request to create the sandbox. remote says that host paths are not those of this host.
func (o runOptions) request(cmd *cobra.Command, image string, remote bool) (*agboxv1.CreateSandboxRequest, error) {
	name := cmp.Or(o.name, nameOfImage(image)+"-"+uuid.NewString()[:5])
	labels, err := parseLabels(cmd, append([]string{runLabel + "=" + name}, o.labels...))
	if err != nil {
		return nil, err
	}
	envs, err := envsOfHere(cmd, o.envs)
	if err != nil {
		return nil, err
	}
	spec := &agboxv1.CreateSpec{
		Image: image, Envs: envs, Labels: labels, MemoryLimit: o.memory, User: o.user, WorkingDir: o.dir,
	}
	if o.network != "" {
		spec.Network = &agboxv1.NetworkSpec{Mode: o.network}
	}
	if o.cpus != "" {
		if spec.CpuLimit, err = quantity.CPUs(o.cpus); err != nil {
			return nil, usagef(cmd, "bad --cpus: %v", err)
		}
	}
	for _, text := range o.ports {
		port, err := parsePort(cmd, text)
		if err != nil {
			return nil, err
		}
		spec.Ports = append(spec.Ports, port)
	}
	for _, text := range o.mounts {
		if err := addMount(cmd, spec, text, remote); err != nil {
			return nil, err
		}
	}
	if o.remove {
		// idle_ttl would stop the sandbox, and a stop clears the deadline.
		spec.Timeout, spec.OnTimeout, spec.IdleTtl = durationpb.New(leaseLength), "delete", durationpb.New(0)
	}
	return &agboxv1.CreateSandboxRequest{CreateSpec: spec, SandboxId: uuid.NewString(), Name: name}, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// nameOfImage is "agbox-dev" for "registry.example.com:5000/team/agbox-dev:dev".
func nameOfImage(image string) string {
	repository, _, _ := strings.Cut(image, "@")
	base, _, _ := strings.Cut(repository[strings.LastIndex(repository, "/")+1:], ":")
	base = notInNames.ReplaceAllString(strings.ToLower(base), "-")
	return cmp.Or(strings.Trim(base[:min(len(base), 40)], "-"), "sandbox")
}

// envsOfHere is parseEnv, but KEY alone has the value of this process.
func envsOfHere(cmd *cobra.Command, list []string) (map[string]string, error) {
	list = slices.Clone(list)
	for i, one := range list {
		if strings.Contains(one, "=") {
			continue
		}
		value, ok := os.LookupEnv(one)
		if !ok {
			return nil, usagef(cmd, "bad -e %s: it is not set here; write KEY=VALUE", one)
		}
		list[i] = one + "=" + value
	}
	return parseEnv(cmd, list)
}

var portPattern = regexp.MustCompile(`^(?:127\.0\.0\.1:)?(?:(\d{1,5}):)?(\d{1,5})(?:/(tcp|udp))?$`)

func parsePort(cmd *cobra.Command, text string) (*agboxv1.PortSpec, error) {
	m := portPattern.FindStringSubmatch(text)
	if m == nil {
		return nil, usagef(cmd, "bad -p %q: write PORT, HOST_PORT:PORT or HOST_PORT:PORT/udp; ports are published on 127.0.0.1 only", text)
	}
	host, _ := strconv.ParseUint(cmp.Or(m[1], "0"), 10, 32) // the pattern has digits only
	port, _ := strconv.ParseUint(m[2], 10, 32)
	return &agboxv1.PortSpec{ContainerPort: uint32(port), HostPort: uint32(host), Protocol: m[3]}, nil
}

// addMount adds a mount, or a volume if the source has no slash.
func addMount(cmd *cobra.Command, spec *agboxv1.CreateSpec, text string, remote bool) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
		return usagef(cmd, "bad -v %q: write SOURCE:TARGET or SOURCE:TARGET:ro", text)
	}
	source, writable := parts[0], len(parts) == 2 || parts[2] == "rw"
	if !strings.Contains(source, "/") && source != "." && source != ".." {
		if !writable {
			return usagef(cmd, "bad -v %q: a volume is writable; a path of this host has a slash, such as ./%s", text, source)
		}
		spec.Volumes = append(spec.Volumes, &agboxv1.VolumeSpec{Name: source, Target: parts[1]})
		return nil
	}
	if remote && !filepath.IsAbs(source) {
		return usagef(cmd, "bad -v %q: write an absolute path: it is one of the daemon's host", text)
	}
	path, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	spec.Mounts = append(spec.Mounts, &agboxv1.MountSpec{Source: path, Target: parts[1], Writable: writable})
	return nil
}

func (a *app) run(cmd *cobra.Command, create *agboxv1.CreateSandboxRequest, command []string, o runOptions) error {
	ctx := cmd.Context()
	exec := &agboxv1.CreateExecRequest{Command: command, ExecId: uuid.NewString()}
	switch {
	case o.remove && len(command) == 0:
		return usagef(cmd, "--rm needs a command: it deletes the sandbox when the command has ended")
	case o.remove && o.detach:
		return usagef(cmd, "expected --rm or -d, not both: with -d nothing waits for the end of the command")
	}
	if err := checkText(cmd, exec); err != nil {
		return err
	}
	// A sent request is answered even after a signal: otherwise nothing could tell whether there is a sandbox to delete.
	calls, giveUp := outliving(ctx, answerPatience)
	sb, err := a.conn().CreateSandbox(calls, create)
	giveUp()
	if err != nil && !client.IsUnanswered(err) && ctx.Err() == nil {
		return notRun(ctx, err)
	}
	if o.remove {
		defer a.removeAtLast(create)
	}
	if err != nil {
		return notRun(ctx, err)
	}
	a.warnEngine(ctx)
	if !o.remove {
		fmt.Fprintf(a.Err, "sandbox/%s created; \"agbox delete %s\" removes it\n", sb.GetName(), sb.GetName())
	}
	if o.detach && len(command) == 0 {
		fmt.Fprintln(a.Out, sb.GetName())
		return nil
	}
	ready, done := context.WithTimeout(ctx, o.timeout)
	_, err = await(ready, a, a.sandboxKind(), sb, string(client.Ready), o.timeout)
	done()
	switch {
	case err != nil:
		return notRun(ctx, err)
	case len(command) == 0:
		fmt.Fprintf(a.Out, "sandbox/%s ready\n", sb.GetName())
		a.hint(fmt.Sprintf("\"agbox exec %s -- COMMAND\" runs a command in it", sb.GetName()))
		return nil
	case o.remove:
		defer a.keepLease(ctx, sb)()
	}
	return a.exec(ctx, sb.GetSandboxId(), exec, execOptions{detach: o.detach})
}

// keepLease extends the deadline of a sandbox with --rm until stop is called, also after a signal.
func (a *app) keepLease(ctx context.Context, sb *agboxv1.SandboxHandle) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for wait.For(ctx, leaseRenew) == nil {
			_, _, _ = a.conn().SetSandboxTimeout(ctx, sb.GetSandboxId(), client.Timeout{After: leaseLength}) // the next one extends it too
		}
	}()
	return func() { cancel(); <-gone }
}

// removeAtLast retries the delete of --rm until it is recorded, or says who does it.
func (a *app) removeAtLast(create *agboxv1.CreateSandboxRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	for {
		err := a.conn().DeleteSandbox(ctx, create.GetSandboxId())
		if err == nil || client.IsNotFound(err) {
			return
		}
		if !client.IsUnavailable(err) || wait.For(ctx, retryEvery) != nil {
			a.complain(fmt.Errorf("delete sandbox %s: %w; the daemon deletes it after its timeout of %s, \"agbox delete %s\" at once",
				create.GetName(), err, leaseLength, create.GetName()))
			return
		}
	}
}
