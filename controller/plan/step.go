package plan

import "slices"

// Kind names a step. The set is closed: it is a metric label.
type Kind string

// The steps. Each is idempotent.
const (
	// MakeInputs creates the directories that are mounted into the primary.
	MakeInputs Kind = "make-inputs"
	// EnsureImage finds the image of the primary, or of Step.Service, or pulls it in the background.
	EnsureImage Kind = "ensure-image"
	// CreateNetwork creates the sandbox's network.
	CreateNetwork Kind = "create-network"
	// ConfineNetwork sets the packet filter rules of the sandbox's policy for the network Step.ID, or for the one created in this pass.
	ConfineNetwork Kind = "confine-network"
	// ConnectNetwork attaches the container Step.ID to the network Step.Network, or to the one created in this pass.
	ConnectNetwork Kind = "connect-network"
	// CreatePrimary creates the primary container on the network Step.ID, or on the one created in this pass.
	CreatePrimary Kind = "create-primary"
	// CreateService creates the container of Step.Service, in the same way.
	CreateService Kind = "create-service"
	// CopyFiles copies host files into the primary Step.ID, or the one created in this pass, in the background.
	CopyFiles Kind = "copy-files"
	// StartContainer starts Step.ID, or the container created in this pass for Step.Service.
	StartContainer Kind = "start-container"
	// Release checks the primary's mounts against their sources, and lets its PID 1 continue.
	Release Kind = "release"
	// RunHook requests the start of a hook, CancelHook its end, and EndHook removes the request.
	RunHook    Kind = "run-hook"
	CancelHook Kind = "cancel-hook"
	EndHook    Kind = "end-hook"
	// CancelExecs enqueues the execs; each reads the sandbox's desired state and ends.
	CancelExecs Kind = "cancel-execs"
	// UpdateLimits sets Step.Limits on Step.ID.
	UpdateLimits Kind = "update-limits"
	// StopContainer stops Step.ID in the background: TERM, KILL after the grace period.
	StopContainer Kind = "stop-container"
	// PauseContainer freezes Step.ID, and UnpauseContainer thaws it.
	PauseContainer   Kind = "pause-container"
	UnpauseContainer Kind = "unpause-container"
	// RemoveContainer kills and removes Step.ID.
	RemoveContainer Kind = "remove-container"
	// RemoveNetwork removes Step.ID.
	RemoveNetwork Kind = "remove-network"
	// RemoveInputs removes the directories that MakeInputs created, except the logs.
	RemoveInputs Kind = "remove-inputs"
	// RemoveFiles removes inputs and artifacts, logs included.
	RemoveFiles Kind = "remove-files"
	// RemoveVolumes removes the volumes that a container has left, and on request those of the sandbox's name.
	RemoveVolumes Kind = "remove-volumes"
	// CreateSnapshot makes an image of the sandbox's files, and RemoveSnapshot removes one, or a part of one. No pass plans them: they are calls.
	CreateSnapshot Kind = "create-snapshot"
	RemoveSnapshot Kind = "remove-snapshot"
	// BuildTemplate makes an image from the steps of a gateway's client, and RemoveTemplate removes one, or what a build has left. They are calls, too.
	BuildTemplate  Kind = "build-template"
	RemoveTemplate Kind = "remove-template"
	// StopIdle asks the store to set the idle sandbox's desired state to stop.
	StopIdle Kind = "stop-idle"
	// Expire asks the store to apply on_timeout to a sandbox whose timeout has passed.
	Expire Kind = "expire"
	// Demote asks the store to demote a paused sandbox: to have it stopped rather than frozen.
	Demote Kind = "demote"
	// StopDead records a sandbox as stopped: a paused one whose memory is lost, or one whose primary was stopped from outside.
	// Step.Words is the reason in the event.
	StopDead Kind = "stop-dead"
	// PauseCleanup asks the store to delete a sandbox that has been demoted for too long.
	PauseCleanup Kind = "pause-cleanup"
	// Cleanup asks the store to delete a sandbox that has been STOPPED or FAILED for too long.
	Cleanup Kind = "cleanup"
)

// Kinds lists every step.
func Kinds() []Kind {
	return []Kind{
		MakeInputs, EnsureImage, CreateNetwork, ConfineNetwork, ConnectNetwork, CreatePrimary, CreateService, CopyFiles, StartContainer, Release,
		RunHook, CancelHook, EndHook, CancelExecs, UpdateLimits, StopContainer, PauseContainer, UnpauseContainer,
		RemoveContainer, RemoveNetwork, RemoveInputs, RemoveFiles, RemoveVolumes,
		CreateSnapshot, RemoveSnapshot, BuildTemplate, RemoveTemplate,
		StopIdle, Expire, Demote, StopDead, PauseCleanup, Cleanup,
	}
}

func (k Kind) in(kinds ...Kind) bool { return slices.Contains(kinds, k) }

// OnEngine reports whether the step acts on the engine, or on what its networks let through; those are audited.
func (k Kind) OnEngine() bool {
	return k.in(EnsureImage, CreateNetwork, ConfineNetwork, ConnectNetwork, CreatePrimary, CreateService, CopyFiles, StartContainer,
		UpdateLimits, StopContainer, PauseContainer, UnpauseContainer, RemoveContainer, RemoveNetwork, RemoveVolumes, CreateSnapshot, RemoveSnapshot, BuildTemplate, RemoveTemplate)
}

// InBackground reports whether a background operation runs the step. The operation writes the audit line when it ends; a pass observes only
// the outcome, possibly more than once.
func (k Kind) InBackground() bool {
	return k.in(EnsureImage, CopyFiles, StopContainer, RemoveContainer, RemoveVolumes)
}

// Unseen reports whether no later pass can observe what the step did.
func (k Kind) Unseen() bool { return k.in(EnsureImage, CopyFiles) }

// Waits reports whether the step may continue in the background. Consecutive steps of that kind run concurrently.
func (k Kind) Waits() bool { return k.in(EnsureImage, StopContainer) }

// Makes reports whether the step is part of starting a container. Only those can fail the sandbox: stops and removals are retried forever.
func (k Kind) Makes() bool {
	return k.in(EnsureImage, CreatePrimary, CreateService, CopyFiles, StartContainer, Release)
}

// NeedsRoom reports whether a step fills the engine's disk, so that it waits while a disk is full. No stop, resume or delete has such a step.
func (k Kind) NeedsRoom() bool { return k.in(CreatePrimary, CreateService, CopyFiles) }

// Reason is why a step runs. The set is closed; it is for operators and not part of the API.
type Reason string

// The reasons.
const (
	BecauseCreate         Reason = "create"               // a create was accepted
	BecauseResume         Reason = "resume"               // a resume was accepted
	BecauseEngineDeath    Reason = "engine-death"         // the engine died and ended the running containers
	BecauseHostDeath      Reason = "host-death"           // the host was rebooted
	BecauseRestartPolicy  Reason = "restart-policy"       // it ended on its own, and its policy restarts it
	BecauseStop           Reason = "stop-requested"       // a stop was accepted
	BecausePause          Reason = "pause-requested"      // a pause was accepted
	BecauseTimeout        Reason = "timeout"              // its timeout has passed
	BecauseDemoted        Reason = "demoted"              // a paused sandbox is stopped to save its memory
	BecauseFrozenLong     Reason = "frozen-long"          // pause.freeze_duration
	BecauseTooManyFrozen  Reason = "too-many-frozen"      // pause.max_frozen
	BecauseFreezeRefused  Reason = "freeze-refused"       // the engine refuses to freeze it
	BecauseIdle           Reason = "idle"                 // idle_ttl has passed
	BecauseDiskLimit      Reason = "disk-limit"           // it has written more than its disk_limit, which the engine does not hold
	BecauseDelete         Reason = "delete-requested"     // a delete was accepted
	BecauseCleanup        Reason = "cleanup"              // runtime.cleanup_ttl or pause.stopped_gc_after has passed
	BecauseSpecChanged    Reason = "spec-changed"         // an update changed limits
	BecauseCreateFailed   Reason = "create-failed"        // a failed create leaves only its history
	BecauseFailed         Reason = "sandbox-failed"       // its running containers are stopped
	BecauseOutside        Reason = "started-from-outside" // a container of a stopped sandbox was started from outside
	BecauseStoppedOutside Reason = "stopped-from-outside" // its container was stopped from outside
	BecauseNotInSpec      Reason = "not-in-spec"          // the spec has no such part
	BecauseDisconnected   Reason = "disconnected"         // the container was disconnected from its network, or the network removed
	BecausePolicy         Reason = "network-policy"       // the packet filter rules of its network are not those of its policy
	BecauseOrphan         Reason = "orphan"               // the sandbox is deleted
	BecauseMountSwapped   Reason = "mount-swapped"        // a mount is not what its source names; nothing has run yet
	// Reasons of actions without a sandbox:
	BecauseRequested       Reason = "requested"        // a user asked for it
	BecauseEngineMarked    Reason = "engine-marked"    // our marker was written to an engine without one
	BecauseEngineConfirmed Reason = "engine-confirmed" // an operator confirmed that the engine is ours
)

// Step is one action. ID is the engine's ID of its object, if it has one.
type Step struct {
	Kind Kind
	ID   string
	// Service is the service of the step; empty for the primary and for the sandbox as a whole.
	Service string
	// Network is the engine's ID of the network; for ConnectNetwork only.
	Network string
	// Limits are for UpdateLimits only.
	Limits Limits
	// Index is the index of the hook, for the steps of hooks.
	Index  int
	Reason Reason
	// Words is the reason in the event that the step leads to, if that event has one.
	Words string
}
