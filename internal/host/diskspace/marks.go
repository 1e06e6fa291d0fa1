package diskspace

// Marks are the limits of one file system, in bytes unless noted.
type Marks struct {
	// Low is the free space below which new work is refused.
	Low int64
	// Ballast is the intended size of the ballast; 0: none on this file system.
	Ballast int64
}

// Bounds of the marks that depend on the size of the file system.
const (
	lowShare     = 20        // 5 %
	lowMost      = 512 << 20 // a larger mark would refuse work on large, well used disks
	reserveShare = 32
	reserveLeast = 512 << 10 // a few hundred commits
	reserveMost  = 64 << 20  // tens of thousands of commits
	inodesLow    = 256       // free inodes below which new work is refused
)

// LowWater is the default of disk.low_water on a file system of total bytes: 5 %, at most 512 MiB.
func LowWater(total int64) int64 { return min(total/lowShare, lowMost) }

// Reserve is the default of disk.reserve on a file system of total bytes: 1/32, within 512 KiB and 64 MiB.
func Reserve(total int64) int64 { return min(max(total/reserveShare, reserveLeast), reserveMost) }

// Reading is one reading of a file system.
type Reading struct {
	// Total and Free are bytes; Free is what a process without privileges can use.
	Total, Free int64
	// Inodes is the total number of inodes, 0 where the file system has no such limit; FreeInodes is how many are free.
	Inodes, FreeInodes int64
	// Ballast is the size that the ballast has now.
	Ballast int64
}

// Verdict is the decision on a Reading.
type Verdict struct {
	// Low: new work is refused.
	Low bool
	// MakeBallast: there is room for the missing part of the ballast.
	MakeBallast bool
}

// Decide returns the verdict on a reading; wasLow is the previous verdict.
//
//   - Free space counts as if the whole ballast existed: releasing it does not end Low.
//   - Low starts below the mark, or when the ballast is missing: it was released because a write found no room, even if the
//     file system reports free space, as with quotas.
//   - Low ends a quarter above the mark, which avoids flapping, and only when the ballast is complete: creating it proves that
//     there is room.
func Decide(m Marks, r Reading, wasLow bool) Verdict {
	missing := max(0, m.Ballast-r.Ballast)
	left, mark := r.Free-missing, m.Low
	noInodes := r.Inodes > 0 && r.FreeInodes < min(inodesLow, r.Inodes/lowShare)
	if wasLow {
		mark += m.Low / 4
	}
	return Verdict{Low: missing > 0 || left < mark || noInodes, MakeBallast: missing > 0 && left >= m.Low && !noInodes}
}
