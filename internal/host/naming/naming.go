// Package naming defines the names and labels of the Docker objects of a sandbox. All are functions of IDs only, so a
// repeated create conflicts with the first one instead of creating a duplicate.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Label keys. Every object that agboxd creates has Instance and, except the marker volume, Component. Containers and networks have
// SandboxID; volumes have SandboxName and Volume.
const (
	prefix = "io.github.1996fanrui.agents-sandbox"

	// SandboxID names the sandbox that the object belongs to.
	SandboxID = prefix + ".sandbox-id"
	// Component is one of the Component* values.
	Component = prefix + ".component"
	// ServiceName is set on service containers.
	ServiceName = prefix + ".service-name"
	// UserPrefix precedes the key of each user label.
	UserPrefix = prefix + ".user."
	// Instance is the UUID of the store whose daemon created the object.
	Instance = prefix + ".instance"
	// Spec is the spec at creation, without the values of its envs; see plan.SpecLabel.
	Spec = prefix + ".spec"
	// SpecHash is plan.SpecHash of the spec at creation.
	SpecHash = prefix + ".spec-hash"
	// Template is set on containers: the image reference as in the spec.
	Template = prefix + ".template"
	// Confinement is set on primaries: the store's Confinement record as JSON. Absent for a sandbox without one.
	Confinement = prefix + ".confinement"
	// Caller is who created the sandbox, for whom it counts.
	Caller = prefix + ".caller"
	// Entrypoint is a label of images: "run" or "skip" says whether their ENTRYPOINT runs in a sandbox whose entrypoint is auto.
	Entrypoint = prefix + ".entrypoint"
	// SandboxName is the name of the sandbox that the object belongs to. Absent on objects of a sandbox without a name, and on containers and
	// networks of releases before it; nothing is decided by it, except which volumes a sandbox has.
	SandboxName = prefix + ".sandbox-name"
	// Volume is set on named volumes: their name in the spec.
	Volume = prefix + ".volume"
	// SnapshotInstance is the UUID of the store whose daemon made an image. Images have none of the labels above: a container inherits the
	// labels of its image, and one that a user starts from a snapshot is not ours.
	SnapshotInstance = prefix + ".snapshot-instance"
	// SnapshotID, SnapshotOf and SnapshotOwner are set on snapshots: their ID, the sandbox that they were made of, and its gateway's owner.
	SnapshotID    = prefix + ".snapshot-id"
	SnapshotOf    = prefix + ".snapshot-of"
	SnapshotOwner = prefix + ".snapshot-owner"
	// SnapshotPart is set, with the ID, on an image from which a snapshot is being made.
	SnapshotPart = prefix + ".snapshot-part"
	// BuildLayer is set on the images of the steps of a build and on their containers: the UUID of the store whose daemon made them. It is empty
	// on finished builds and what is made from them.
	BuildLayer = prefix + ".build-layer"
	// BuildFresh is set, with an ID that no other build has, on the steps that a build does not take from the cache.
	BuildFresh = prefix + ".build-fresh"
	// BuildInstance, as SnapshotInstance, BuildID, BuildTemplate, BuildOwner, BuildName, BuildAt and BuildSettings are set on finished builds: the UUID
	// of the store, the IDs of the build and its template, the gateway's owner, the template's name, the time in Unix nanoseconds, and the
	// TemplateSettings as JSON.
	BuildInstance = prefix + ".build-instance"
	BuildID       = prefix + ".build-id"
	BuildTemplate = prefix + ".build-template"
	BuildOwner    = prefix + ".build-owner"
	BuildName     = prefix + ".build-name"
	BuildAt       = prefix + ".build-at"
	BuildSettings = prefix + ".build-settings"
	// Marker is set on the volume that identifies this engine.
	Marker = prefix + ".marker"
)

// Values of the Component label.
const (
	ComponentPrimary = "primary"
	ComponentService = "service"
	ComponentNetwork = "network"
	ComponentVolume  = "volume"
	// ComponentRoot is a volume that is a writable part of a read-only root. Its other labels are those of its container.
	ComponentRoot = "root"
)

// Network returns the name of the sandbox's network. Docker can create several networks of one name: find them by
// label, address them by ID.
func Network(sandboxID string) string { return "agbox-net-" + plain(sandboxID, "") }

// Bridge returns the name of the interface that a bridge network with this ID has on the engine's host.
func Bridge(networkID string) string { return "br-" + networkID[:min(12, len(networkID))] }

// Primary returns the name of the sandbox's primary container.
func Primary(sandboxID string) string { return "agbox-primary-" + plain(sandboxID, "") }

// Service returns the name of one service container.
func Service(sandboxID, service string) string {
	if !strings.Contains(sandboxID, "_") && !strings.ContainsAny(service, "-_") {
		return "agbox-svc-" + sandboxID + "-" + service
	}
	return "agbox-svc-" + hyphens(sandboxID+"-"+service) + digest(sandboxID, service)
}

// MarkerVolume returns the name of the volume that marks the engine of a store.
func MarkerVolume(instance string) string { return "agbox-marker-" + instance }

// VolumeOf returns the engine's name of a volume of the sandboxes with a name. A sandbox's name has no ".".
func VolumeOf(instance, sandboxName, volume string) string {
	return "agbox-vol-" + instance + "-" + sandboxName + "." + volume
}

const snapshotRepository = "agbox-snapshot:"

// SnapshotRef returns the name of the image of a snapshot. It keeps the image from a prune of unnamed ones; nothing is found by it. An ID may
// have 200 characters, more than a tag, and the daemons of other stores may use the same one. An empty instance gives the name of earlier versions.
func SnapshotRef(instance, snapshotID string) string {
	text := snapshotID
	if instance != "" {
		text = instance + "\x00" + snapshotID
	}
	sum := sha256.Sum256([]byte(text))
	return snapshotRepository + hex.EncodeToString(sum[:])[:32]
}

// FindSnapshotRef returns the name by which an image with these labels and names is a snapshot; empty: it is none. An image that a user built on
// one, or committed from a container of one, inherits the labels, but not the name.
func FindSnapshotRef(labels map[string]string, refs []string) string {
	id := labels[SnapshotID]
	if id == "" {
		return ""
	}
	for _, ref := range []string{SnapshotRef(labels[SnapshotInstance], id), SnapshotRef("", id)} {
		if slices.Contains(refs, ref) {
			return ref
		}
	}
	return ""
}

// BuildRef returns the name of the image of a finished build. An image without it is no finished build, whatever its labels say.
func BuildRef(buildID string) string { return "agbox-template:" + buildID }

// IsOthers reports whether an image that a client of a gateway reached by ref is a snapshot or a finished build of another owner, or an image from
// which one was being made. The client's own registry can name any image that the engine has: the engine pulls nothing of one that it has.
// IDs and the names of snapshots and builds are not the client's: the gateway or the configuration has chosen them.
func IsOthers(owner, ref string, labels map[string]string, refs []string) bool {
	id := labels[BuildID]
	switch {
	case strings.HasPrefix(ref, "sha256:"), isTagged(ref, BuildRef("")), isTagged(ref, snapshotRepository):
		return false
	case id != "" && slices.Contains(refs, BuildRef(id)):
		return labels[BuildOwner] != owner
	case FindSnapshotRef(labels, refs) != "":
		return labels[SnapshotOwner] != owner
	}
	return labels[BuildLayer] != "" || labels[SnapshotPart] != ""
}

// isTagged reports whether a reference is a tag of a repository of the engine: "NAME:5000/x" is one of a registry.
func isTagged(ref, repository string) bool {
	return strings.HasPrefix(ref, repository) && !strings.Contains(ref, "/")
}

// ParseVolume is the inverse of VolumeOf, without the instance, whose length is that of a UUID.
func ParseVolume(name string) (sandboxName, volume string, ok bool) {
	const instance = 36
	rest, ok := strings.CutPrefix(name, "agbox-vol-")
	if !ok || len(rest) <= instance || rest[instance] != '-' {
		return "", "", false
	}
	sandboxName, volume, ok = strings.Cut(rest[instance+1:], ".")
	return sandboxName, volume, ok && sandboxName != "" && volume != ""
}

// plain returns IDs of letters, digits and hyphens unchanged. Others get a digest after a "_", which plain names
// never contain, so no two IDs share a name.
func plain(sandboxID, service string) string {
	if !strings.Contains(sandboxID, "_") {
		return sandboxID
	}
	return hyphens(sandboxID) + digest(sandboxID, service)
}

func hyphens(s string) string { return strings.ReplaceAll(s, "_", "-") }

func digest(sandboxID, service string) string {
	sum := sha256.Sum256([]byte(sandboxID + "\x00" + service))
	return "_" + hex.EncodeToString(sum[:])[:12]
}
