package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/store/internal/txlog"
)

// A database of the daemon that served this API before agboxd has six kinds of buckets, with the meaning that the schema gives them, and
// none of agboxd's. Open adopts it: it writes a new file with the same records and those that agboxd derives from them, keeps the old file
// under another name, and renames the new one into place. See decision 0025.
var (
	olderBuckets  = []string{bucketSandboxID, bucketExecID, bucketConfig, bucketDeletedAt}
	olderPrefixes = []string{prefixEvents, prefixExecConfig}

	// newerBuckets and newerPrefixes are only in files that agboxd wrote.
	newerBuckets = []string{
		bucketMeta, bucketDesired, bucketNames, bucketState, bucketProgress, bucketTrimmed, bucketUnswept, bucketGivenUp, bucketUnproven, bucketGatewayKeys,
		bucketTemplateBuilds,
		bucketExecRefs, bucketAgentID, bucketAgentConfig, bucketAgentDesired, bucketAgentStatus, bucketAgentPosition,
	}
	newerPrefixes = []string{
		prefixExecDesired, prefixExecStatus, prefixAgentPrompts, prefixAgentPromptIDs, prefixAgentTransitions, prefixAgentEvents,
	}
)

const (
	// keptOlder is the part of the name of a kept database that says what it is.
	keptOlder = "older"
	// unfinishedOlder is the suffix of a new file that is not complete.
	unfinishedOlder = ".adopting"
)

// adoptOlder replaces a database of an older daemon by one with the same records. It leaves any other file alone. A crash leaves the old file
// in place, or the new one, complete; the old one stays in either case. Errors: ErrFailedPrecondition for a file that is of neither daemon, or
// that cannot be adopted: it stays unchanged and in its place; ErrUnavailable when a process has it open, or there is no space.
func adoptOlder(ctx context.Context, o Options) error {
	db, err := bolt.Open(o.Path, 0o600, &bolt.Options{ReadOnly: true, Timeout: o.LockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return openError(o.Path, err)
	}
	return errors.Join(db.View(func(tx *bolt.Tx) error { // the lock on the file keeps the older daemon away until the end
		older, err := isOlder(tx, o.Path)
		if err != nil || !older {
			return err
		}
		return replaceOlder(ctx, tx, o)
	}), db.Close())
}

// isOlder reports whether a database is of an older daemon. Errors: ErrFailedPrecondition.
func isOlder(tx *bolt.Tx, path string) (bool, error) {
	if get(tx, bucketMeta, []byte(keySchema)) != nil {
		return false, nil
	}
	var older, newer bool
	var unknown []string
	_ = tx.ForEach(func(name []byte, _ *bolt.Bucket) error { // fn returns no error
		switch bucket := string(name); {
		case isNamed(bucket, olderBuckets, olderPrefixes):
			older = true
		case isNamed(bucket, newerBuckets, newerPrefixes):
			newer = true
		default:
			unknown = append(unknown, fmt.Sprintf("%q", bucket))
		}
		return nil
	})
	if len(unknown) > 0 {
		return false, notAdopted(path, "it has buckets that neither agboxd nor an older daemon writes: %s",
			strings.Join(unknown[:min(len(unknown), maxFindings)], ", "))
	}
	if newer || !older {
		return false, nil // it is damaged, which its load finds out
	}
	snapshots, err := txlog.Snapshots(LogDir(path))
	if err != nil {
		return false, err
	}
	if len(snapshots) > 0 {
		return false, notAdopted(path, "it is of an older daemon, and %s beside it is the log of a database of agboxd", LogDir(path))
	}
	return true, nil
}

func isNamed(bucket string, names, prefixes []string) bool {
	return slices.Contains(names, bucket) ||
		slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(bucket, prefix) && bucket != prefix })
}

func notAdopted(path, format string, args ...any) error {
	return fmt.Errorf("%s can't be adopted and is left as it is: %s; move it away, and agboxd starts without its sandboxes: %w",
		path, fmt.Sprintf(format, args...), errdefs.ErrFailedPrecondition)
}

// replaceOlder writes the new file, and puts it into the place of the old one.
func replaceOlder(ctx context.Context, tx *bolt.Tx, o Options) error {
	tmp := o.Path + unfinishedOlder
	if err := disk.Remove(tmp); err != nil {
		return fmt.Errorf("remove an unfinished adoption: %w: %w", err, errdefs.ErrUnavailable)
	}
	sandboxes, err := convertOlder(ctx, tx, o, tmp)
	if err != nil {
		return errors.Join(err, disk.Remove(tmp))
	}
	kept, err := keepOlder(o)
	if err != nil {
		return errors.Join(fmt.Errorf("keep the database of the older daemon: %w: %w", err, errdefs.ErrUnavailable), disk.Remove(tmp))
	}
	if err := os.Rename(tmp, o.Path); err != nil {
		return fmt.Errorf("put the adopted database in place: %w: %w", err, errdefs.ErrUnavailable)
	}
	if err := disk.Sync(filepath.Dir(o.Path)); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	o.Logger.Warn("the database of an older daemon was adopted", "path", o.Path, "kept_as", kept, "sandboxes", sandboxes)
	return nil
}

// keepOlder gives the old file a second name, unless an adoption that was cut off has done that.
func keepOlder(o Options) (string, error) {
	present, err := os.Stat(o.Path)
	if err != nil {
		return "", err
	}
	kept, err := filepath.Glob(o.Path + "." + keptOlder + "-*")
	if err != nil {
		return "", err
	}
	for _, path := range kept {
		if info, err := os.Lstat(path); err == nil && os.SameFile(info, present) {
			return path, nil
		}
	}
	return linkAside(o.Path, keptOlder, o.Now())
}

// convertOlder writes the new file to path and syncs it. It returns the number of live sandboxes.
func convertOlder(ctx context.Context, tx *bolt.Tx, o Options, path string) (sandboxes int, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return 0, openError(path, err)
	}
	c := &conversion{old: tx, path: o.Path, now: o.Now(), execs: map[string]string{}}
	err = bulkUpdate(db, func(put func(op) error) error {
		c.put = put
		return c.run(ctx)
	})
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error { return initialize(tx, o) })
	}
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil && !errdefs.IsFailedPrecondition(err) {
		err = fmt.Errorf("adopt the database of an older daemon: %w: %w", classify(err), errdefs.ErrUnavailable)
	}
	return c.live, err
}
