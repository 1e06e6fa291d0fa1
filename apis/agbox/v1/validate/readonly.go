package validate

import (
	"fmt"
	"slices"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// writableRoots are the directories that stay writable under a read-only root.
var writableRoots = []string{"/home", "/root", "/run", "/tmp", "/var/tmp", "/workspace"}

// WritableRoots returns the directories of the primary that are volumes of the sandbox because its root is read-only: none without
// security.read_only_root, and none that is or lies in a mount or a named volume of the spec.
func WritableRoots(spec *agboxv1.CreateSpec) (dirs []string) {
	if !spec.GetSecurity().GetReadOnlyRoot() {
		return nil
	}
	var mounted []string
	for _, m := range spec.GetMounts() {
		mounted = append(mounted, m.GetTarget())
	}
	for _, v := range spec.GetVolumes() {
		mounted = append(mounted, v.GetTarget())
	}
	for _, dir := range writableRoots {
		if !slices.ContainsFunc(mounted, func(target string) bool { return within(dir, target) }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// checkReadOnly refuses what a read-only root makes impossible.
func checkReadOnly(errs *Errors, spec *agboxv1.CreateSpec) {
	if !spec.GetSecurity().GetReadOnlyRoot() {
		return
	}
	dirs := WritableRoots(spec)
	check := func(field, target string) {
		if target != "" && !slices.ContainsFunc(dirs, func(dir string) bool { return within(target, dir) }) {
			errs.add(field, "%s can't be written under security.read_only_root: choose a path below %s", short(target), strings.Join(dirs, ", "))
		}
	}
	for i, c := range spec.GetCopies() {
		check(fmt.Sprintf("copies[%d].target", i), c.GetTarget())
	}
	for _, s := range spec.GetSecrets() {
		check(keyed("secrets", s.GetName())+".target", s.GetTarget())
	}
	errs.addIf(spec.GetDiskLimit() != "", "disk_limit", "can't be honoured under security.read_only_root: what the sandbox writes is in volumes, which it does not limit")
}
