package diskspace

// Marks are the limits of one file system, in bytes unless said otherwise.
type Marks struct {
	// Low is the free space under which nothing new is accepted.
	Low int64
	// Inodes is the number of free inodes under which nothing new is accepted.
	Inodes int64
	// Ballast is the wanted size of the ballast; 0: there is none on this file system.
	Ballast int64
}

// Bounds of the marks that depend on the size of the file system.
const (
	lowShare     = 20        // 5 %
	lowMost      = 512 << 20 // more would refuse work on large disks that are merely well used
	reserveShare = 32
	reserveLeast = 512 << 10 // a few hundred commits
	reserveMost  = 64 << 20  // tens of thousands of commits
	inodesLow    = 256
)

// LowWater is the default of disk.low_water on a file system of total bytes: 5 %, at most 512 MiB.
func LowWater(total int64) int64 { return min(total/lowShare, lowMost) }

// Reserve is the default of disk.reserve on a file system of total bytes: 1/32, within 512 KiB and 64 MiB.
func Reserve(total int64) int64 { return min(max(total/reserveShare, reserveLeast), reserveMost) }

// Reading is one look at a file system.
type Reading struct {
	// Total and Free are bytes; Free is what a process without privileges can use.
	Total, Free int64
	// Inodes is the number of all inodes, 0 where the file system has no such limit; FreeInodes of those that are free.
	Inodes, FreeInodes int64
	// Ballast is how much the ballast holds.
	Ballast int64
}

// Verdict is what follows from a Reading.
type Verdict struct {
	// Low refuses new work.
	Low bool
	// MakeBallast says that there is room for the part of the ballast that is missing.
	MakeBallast bool
}

// Decide judges a reading; wasLow is the verdict before.
//
//   - Free space counts as if the whole ballast was held: releasing it does not end Low.
//   - Low begins below the mark, or when the ballast is missing: it was released because a write found no room, whatever the
//     file system says, as quotas do.
//   - Low ends a quarter above the mark, so that it does not flicker, and when the ballast is whole: making it proves that
//     there is room.
func Decide(m Marks, r Reading, wasLow bool) Verdict {
	missing := max(0, m.Ballast-r.Ballast)
	left, mark := r.Free-missing, m.Low
	noInodes := r.Inodes > 0 && r.FreeInodes < min(m.Inodes, r.Inodes/lowShare)
	if wasLow {
		mark += m.Low / 4
	}
	return Verdict{Low: missing > 0 || left < mark || noInodes, MakeBallast: missing > 0 && left >= m.Low && !noInodes}
}
