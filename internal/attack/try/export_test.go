package try

// The floods, for tests.
var (
	Forks  = forks
	Memory = memory
	Disk   = disk
)
