package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

type lsOptions struct {
	user                 string
	long, all, recursive bool
}

func (a *app) lsCommand() *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use: "ls NAME [PATH]", Short: "List files of a sandbox", SuggestFor: []string{"dir"},
		Long: `List a directory of a sandbox, or one file. A relative PATH is below the home of the user, which is also the default. The files of a stopped
sandbox are listed as root and need an absolute PATH.`,
		Example: "  agbox ls web\n  agbox ls web /workspace -laR", ValidArgsFunction: a.sandboxKind().first,
		Args: count(1, 2, "the name of a sandbox and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			where := "."
			if len(args) > 1 {
				where = args[1]
			}
			return a.ls(cmd.Context(), args[0], where, o)
		},
	}
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "list as this user of the sandbox (default the sandbox's)")
	cmd.Flags().BoolVarP(&o.long, "long", "l", false, "with mode, owner, size and time")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "with names that start with a dot")
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "with everything below, up to 100 levels")
	return cmd
}

func (a *app) ls(ctx context.Context, name, where string, o lsOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, name)
	if err != nil {
		return err
	}
	e, err := a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: sb.GetSandboxId(), Path: where, User: o.user, Follow: true})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 1, ' ', 0)
	if e.GetType() != agboxv1.FileType_FILE_TYPE_DIRECTORY {
		printEntry(w, e, where, o.long)
		return w.Flush()
	}
	req := &agboxv1.ListDirRequest{SandboxId: sb.GetSandboxId(), Path: where, User: o.user, Depth: 1}
	if o.recursive {
		req.Depth = 100
	}
	root := ""
	for e, err := range a.conn().ListDir(ctx, req) {
		if err != nil {
			return errors.Join(w.Flush(), err)
		}
		if root == "" {
			root = strings.TrimSuffix(e.GetPath(), e.GetName())
		}
		rel := strings.TrimPrefix(e.GetPath(), root)
		if o.all || !strings.HasPrefix(rel, ".") && !strings.Contains(rel, "/.") {
			printEntry(w, e, rel, o.long)
		}
	}
	return w.Flush()
}

// printEntry prints one line. A name may have any characters.
func printEntry(w io.Writer, e *agboxv1.FileEntry, name string, long bool) {
	name = termsafe.Line(name)
	if !long {
		fmt.Fprintln(w, name)
		return
	}
	if e.GetLinkTarget() != "" {
		name += " -> " + termsafe.Line(e.GetLinkTarget())
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", modeText(e), owner(e.GetOwner(), e.GetUid()), owner(e.GetGroup(), e.GetGid()),
		e.GetSizeBytes(), e.GetModifiedAt().AsTime().Local().Format("2006-01-02 15:04"), name)
}

func owner(name string, number uint32) string {
	if name == "" {
		return fmt.Sprint(number)
	}
	return termsafe.Line(name)
}

// modeText returns the mode as ls(1) shows it.
func modeText(e *agboxv1.FileEntry) string {
	kind := map[agboxv1.FileType]string{
		agboxv1.FileType_FILE_TYPE_REGULAR: "-", agboxv1.FileType_FILE_TYPE_DIRECTORY: "d", agboxv1.FileType_FILE_TYPE_SYMLINK: "l",
	}[e.GetType()]
	if kind == "" {
		kind = "?"
	}
	text := []byte(kind + fs.FileMode(e.GetMode() & 0o777).String()[1:])
	for _, bit := range []struct {
		mask  uint32
		at    int
		small byte
	}{{0o4000, 3, 's'}, {0o2000, 6, 's'}, {0o1000, 9, 't'}} {
		if e.GetMode()&bit.mask == 0 {
			continue
		}
		if text[bit.at] == '-' {
			text[bit.at] = bit.small - 'a' + 'A'
		} else {
			text[bit.at] = bit.small
		}
	}
	return string(text)
}

func (a *app) catCommand() *cobra.Command {
	var user string
	var raw bool
	cmd := &cobra.Command{
		Use: "cat NAME PATH...", Short: "Print files of a sandbox", ValidArgsFunction: a.sandboxKind().first,
		Long: `Print files of a sandbox. On a terminal, escape sequences are shown as text, unless --raw is given; a file or a pipe gets every byte
unchanged.`,
		Example: "  agbox cat web /etc/os-release", Args: count(2, 1<<20, "the name of a sandbox and paths"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.sandboxKind().resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			screens := screens{raw: raw, mode: termsafe.Plain}
			out := screens.before(a.Out)
			failed := false
			for _, name := range args[1:] {
				err := a.cat(cmd.Context(), out, &agboxv1.ReadFileRequest{SandboxId: sb.GetSandboxId(), Path: name, User: user})
				if _, refused := errors.AsType[*client.Error](err); refused {
					a.complain(err)
					failed = true
				} else if err != nil {
					return errors.Join(screens.close(), err)
				}
			}
			if err := screens.close(); err != nil || !failed {
				return err
			}
			return &exitError{code: exitFailed}
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "read as this user of the sandbox (default the sandbox's)")
	cmd.Flags().BoolVar(&raw, "raw", false, "write escape sequences to the terminal unchanged")
	return cmd
}

func (a *app) cat(ctx context.Context, w io.Writer, req *agboxv1.ReadFileRequest) error {
	f, err := a.conn().OpenFile(ctx, req)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	_, err = io.Copy(w, f)
	return err
}

// maxEditBytes is the largest file that is edited.
const maxEditBytes = 64 << 20

func (a *app) editCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "edit NAME PATH", Short: "Edit a file of a sandbox with a local editor", ValidArgsFunction: a.sandboxKind().first,
		Long: `Edit a file of a sandbox with the editor of $VISUAL or $EDITOR, else vi. The file gets its new content at once and keeps mode and owner. If
it was changed meanwhile, it is left alone and the edited text stays in a local file. A file that does not exist is created.`,
		Example: "  agbox edit web /etc/nginx/nginx.conf --user root", Args: exactly(2, "the name of a sandbox and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.sandboxKind().resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.edit(cmd.Context(), &agboxv1.WriteFileStart{SandboxId: sb.GetSandboxId(), Path: args[1], User: user})
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "edit as this user of the sandbox (default the sandbox's)")
	return cmd
}

func (a *app) edit(ctx context.Context, start *agboxv1.WriteFileStart) error {
	var before strings.Builder
	f, err := a.conn().OpenFile(ctx, &agboxv1.ReadFileRequest{SandboxId: start.GetSandboxId(), Path: start.GetPath(), User: start.GetUser()})
	switch {
	case client.Reason(err) == client.ReasonFileNotFound:
		start.Exclusive = true
	case err != nil:
		return err
	default:
		defer f.Close() //nolint:errcheck // it was read only
		if f.Entry().GetSizeBytes() > maxEditBytes {
			return fmt.Errorf("%s has more than %d MiB; use agbox cp", start.GetPath(), maxEditBytes>>20)
		}
		if _, err := io.Copy(&before, f); err != nil {
			return err
		}
		start.IfVersion = f.Entry().GetVersion()
	}
	dir, err := os.MkdirTemp("", "agbox-edit")
	if err != nil {
		return err
	}
	local := dir + "/" + path.Base(start.GetPath())
	if err := os.WriteFile(local, []byte(before.String()), 0o600); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = a.runEditor(ctx, local)
	after, rerr := os.ReadFile(local)
	switch {
	case err != nil && (ctx.Err() != nil || string(after) != before.String()): // also what an editor saves when a signal ends it
		a.hint("the edited text is in " + dir)
		return err
	case err != nil || rerr != nil:
		return errors.Join(err, rerr, os.RemoveAll(dir))
	case string(after) == before.String():
		a.hint(start.GetPath() + " is unchanged")
		return os.RemoveAll(dir)
	}
	if _, err := a.conn().WriteFile(ctx, start, strings.NewReader(string(after))); err != nil {
		return fmt.Errorf("%w; the edited text is in %s", err, local)
	}
	return os.RemoveAll(dir)
}

// runEditor runs the user's editor, which may be a command with arguments.
func (a *app) runEditor(ctx context.Context, file string) error {
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL"} {
		if value := os.Getenv(name); value != "" {
			editor = value
		}
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", file) //nolint:gosec // the user's own command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, termsafe.Unfiltered(a.Out), termsafe.Unfiltered(a.Err)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it puts the terminal back
	defer holdInterrupts(ctx)()                                              // ^C is a key of the editor
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q failed, nothing was changed: %w", editor, err)
	}
	return nil
}
