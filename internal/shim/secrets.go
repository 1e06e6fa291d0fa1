package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/cabundle"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// secrets is what PID 1 has delivered since its start. A secret is delivered in three steps, each of which may be repeated: the record of
// its target, its value, and the link at its target.
type secrets map[string]delivery // by name

// delivery is the last attempt to deliver a secret.
type delivery struct {
	file    fileID
	roots   cabundle.ID // the certificates that the image trusted, if the secret is one
	problem string      // empty: there is none
	failed  bool        // it is not delivered
	at      time.Time
}

// deliverAll delivers all secrets, and withdraws those of earlier runs that agboxd has removed. Nothing of the sandbox runs before.
func (p *initProcess) deliverAll() {
	p.secrets = secrets{}
	present := map[string]bool{}
	for _, file := range p.inbox.list() {
		if name, ok := execjournal.SecretOf(file); ok {
			present[file] = true
			p.deliver(name)
		}
	}
	dir, err := execjournal.OpenSecrets(p.places.Out, false)
	if err != nil {
		return // there were none
	}
	defer unix.Close(dir)
	names, err := readDir(dir)
	if err != nil {
		say("list the delivered secrets: %v", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !present[execjournal.SecretName(name)] {
			p.withdraw(name)
		}
	}
	p.noteProblems()
}

// readDir lists a directory.
func readDir(fd int) ([]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// deliver delivers a secret if its file has changed, if the sandbox has removed what was delivered, or if the last attempt failed.
func (p *initProcess) deliver(name string) {
	file, _, ok := p.inbox.stat(execjournal.SecretName(name))
	last, now := p.secrets[name], time.Now()
	var roots cabundle.ID
	if name == execjournal.AuthoritySecret {
		_, roots = cabundle.Find(p.bundles()...)
	}
	if !ok || last.file == file && last.roots == roots && (last.failed && now.Before(last.at.Add(rescanEvery)) || !last.failed && p.holds(name)) {
		return
	}
	next := delivery{file: file, roots: roots, at: now}
	warning, err := p.deliverFile(name)
	if next.problem = warning; err != nil {
		next.problem, next.failed = err.Error(), true
	}
	p.secrets[name] = next
	if next.problem != last.problem {
		p.noteProblems()
	}
}

// holds reports whether the value of a secret that was delivered is still there.
func (p *initProcess) holds(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(p.valuePath(name), &st) == nil
}

func (p *initProcess) deliverFile(name string) (warning string, err error) {
	ctl, err := execjournal.OpenDir(p.inbox.dir)
	if err != nil {
		return "", err
	}
	defer unix.Close(ctl)
	s, err := execjournal.ReadSecret(ctl, name)
	if err != nil {
		return "", err
	}
	who, err := p.identify(p.user)
	if err != nil {
		return "", err
	}
	dir, err := execjournal.OpenSecrets(p.places.Out, true)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	if s.Roots {
		return putRoots(dir, name, s, p.bundles(), who)
	}
	if was := targetOf(dir, name); was != s.Target {
		p.unlink(was, name)
		if err := replaceLink(dir, atName(name), s.Target); err != nil {
			return "", fmt.Errorf("record its target: %w", err)
		}
	}
	if err := putValue(dir, name, s.Value, 0o400, int(who.UID), int(who.GID)); err != nil {
		return "", err
	}
	return "", p.link(s.Target, name)
}

// bundles are the files with the certificates that the image may trust: the one that its environment names, and those of distributions.
func (p *initProcess) bundles() []string { return append([]string{p.bundle}, cabundle.Paths...) }

// putRoots writes a certificate after those that the image trusts, or those of the host if it has no file of these, for every user. Those in a file that
// the user of commands may not read are for root alone: the user may have put a link to another file there.
func putRoots(dir int, name string, s execjournal.Secret, bundles []string, who passwd.Identity) (warning string, err error) {
	before, mode := s.Others, uint32(0o444)
	if path, _ := cabundle.Find(bundles...); path != "" {
		var info fs.FileInfo
		var cut bool
		if before, info, cut, err = cabundle.Read(path); err != nil {
			return "", fmt.Errorf("read the certificates that the image trusts: %w", err)
		}
		if !mayRead(who, info) {
			mode = 0o400
		}
		if cut {
			warning = fmt.Sprintf("%s has more than %d MiB; programs trust the first part of it only", path, cabundle.MaxBytes>>20)
		}
	}
	return warning, putValue(dir, name, slices.Concat(before, []byte("\n"), s.Value), mode, 0, 0)
}

// mayRead reports whether the mode of a file lets a user read it.
func mayRead(who passwd.Identity, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case who.UID == 0:
		return true
	case who.UID == st.Uid:
		return info.Mode()&0o400 != 0
	case who.GID == st.Gid || slices.Contains(who.Groups, st.Gid):
		return info.Mode()&0o040 != 0
	}
	return info.Mode()&0o004 != 0
}

// putValue writes a value for the users that mode lets read. The mode is never wider, and the content is whole whenever the name exists.
func putValue(dir int, name string, value []byte, mode uint32, uid, gid int) error {
	temp := execjournal.TempName(name, "value")
	fd, err := execjournal.CreateTemp(dir, temp, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	defer f.Close()
	if _, err := f.Write(value); err != nil {
		return errors.Join(fmt.Errorf("write the value: %w", err), unix.Unlinkat(dir, temp, 0))
	}
	if err := f.Chown(uid, gid); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, temp, 0))
	}
	return os.NewSyscallError("rename", unix.Renameat(dir, temp, dir, name))
}

// withdraw removes a secret that agboxd has removed.
func (p *initProcess) withdraw(name string) {
	delete(p.secrets, name)
	dir, err := execjournal.OpenSecrets(p.places.Out, false)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	p.unlink(targetOf(dir, name), name)
	for _, file := range []string{name, atName(name)} {
		if err := unix.Unlinkat(dir, file, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			say("withdraw the secret %s: %v", name, err)
		}
	}
	p.noteProblems()
}

// pruneSecrets withdraws the secrets whose files are gone.
func (p *initProcess) pruneSecrets(present map[string]bool) {
	for name := range p.secrets {
		if !present[execjournal.SecretName(name)] {
			p.withdraw(name)
		}
	}
}

// noteProblems writes down what could not be delivered as it should, for agboxd to show.
func (p *initProcess) noteProblems() {
	dir, err := execjournal.OpenSecrets(p.places.Out, false)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.secrets)) {
		problem := p.secrets[name].problem
		if problem == "" {
			continue
		}
		line := execjournal.Sentence(fmt.Sprintf("secret %s: %s", name, problem))
		say("%s", line)
		text.WriteString(line + "\n")
	}
	if text.Len() == 0 {
		_ = unix.Unlinkat(dir, execjournal.ProblemsName, 0) // mostly there is none
		return
	}
	temp := execjournal.ProblemsName + ".tmp"
	if err := execjournal.Replace(dir, temp, execjournal.ProblemsName, []byte(text.String()), execjournal.PrivateMode, false); err != nil {
		say("note the problems of secrets: %v", err)
	}
}

// atName is the link that records where PID 1 made a link to the value.
func atName(name string) string { return "." + name + ".at" }

// targetOf returns the recorded target of a secret, or "".
func targetOf(dir int, name string) string { return readLink(dir, atName(name)) }

// valuePath is what a target links to.
func (p *initProcess) valuePath(name string) string {
	return path.Join(p.places.Out, execjournal.SecretsDir, name)
}

// link makes target a symbolic link to the value. It replaces a file at the target, follows no symbolic link, and makes nothing on a mount.
func (p *initProcess) link(target, name string) error {
	dir, err := p.openParent(target)
	if err != nil {
		return fmt.Errorf("nothing can be made at %s: %w", target, err)
	}
	defer unix.Close(dir)
	if readLink(dir, path.Base(target)) == p.valuePath(name) {
		return nil
	}
	if err := replaceLink(dir, path.Base(target), p.valuePath(name)); err != nil {
		return fmt.Errorf("nothing can be made at %s: %w", target, err)
	}
	return nil
}

// unlink removes the link to the value at target, if it is still that link.
func (p *initProcess) unlink(target, name string) {
	if target == "" {
		return
	}
	dir, err := p.openParent(target)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	if readLink(dir, path.Base(target)) == p.valuePath(name) {
		_ = unix.Unlinkat(dir, path.Base(target), 0) // it leads nowhere from now on
	}
}

// openParent opens the directory of a target, and makes it if it is missing; see makeDir.
func (p *initProcess) openParent(target string) (int, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return -1, err
	}
	return makeDir(path.Dir(target), p.without(string(mounts)))
}

// readLink returns the text of a symbolic link; "" for anything else.
func readLink(dir int, name string) string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// replaceLink makes name a symbolic link with that text, in one step. Errors: also for a directory of that name.
func replaceLink(dir int, name, text string) error {
	temp := "." + name + ".agbox"
	if err := unix.Unlinkat(dir, temp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Symlinkat(text, dir, temp); err != nil {
		return err
	}
	if err := unix.Renameat(dir, temp, dir, name); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, temp, 0))
	}
	return nil
}
