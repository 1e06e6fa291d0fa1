package recovery

var (
	FromEngine   = (*Rebuilder).fromEngine
	LifeOf       = lifeSince
	BootTime     = bootTime
	RebuildPause = engineLook.Max + 6*rebuildPause
)
