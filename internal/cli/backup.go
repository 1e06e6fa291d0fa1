package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/backup"
)

type backupOptions struct{ withLogs, force bool }

func (a *app) backupCommand() *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a copy of the daemon's records to a file", Args: one("the file to write"),
		Long: `Write a copy of the daemon's records, as they are at this moment, to a file. The daemon keeps running. The file contains
the env values of sandboxes; protect it. "agboxd restore FILE" restores it.`,
		Example: "  agbox backup --with-logs /backups/agbox-$(date +%F)\n  agbox backup verify /backups/agbox-2026-01-31",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.backup(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVar(&o.withLogs, "with-logs", false, "add the logs of commands")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace an existing file")
	cmd.AddCommand(&cobra.Command{
		Use: "verify FILE", Short: "Check that a backup is complete; needs no daemon", Args: one("the file to check"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.verifyBackup(cmd.Context(), args[0]) },
	})
	return cmd
}

// backup writes a temporary file in the same directory first, so that path has either a complete backup or its old content.
func (a *app) backup(ctx context.Context, path string, o backupOptions) error {
	if err := mayWrite(path, o.force); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // it does not exist after success
	err = a.receiveBackup(ctx, tmp, o.withLogs)
	var h backup.Header
	if err == nil {
		h, err = syncedBackup(ctx, tmp)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := install(tmp.Name(), path, o.force); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "backup %s written: %s\n", path, about(h))
	return nil
}

func mayWrite(path string, force bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s exists and is not a regular file; choose another path", path)
	case !force:
		return exists(path)
	}
	return nil
}

func exists(path string) error {
	return fmt.Errorf("%s already exists; choose another path, or replace it with --force", path)
}

// progressAfter is the pause between two updates of the progress on a terminal.
const progressAfter = time.Second

func (a *app) receiveBackup(ctx context.Context, f *os.File, withLogs bool) error {
	defer a.notes.clear()
	start, shown := time.Now(), time.Now()
	var n int64
	return a.conn().Backup(ctx, meter(func(p []byte) (int, error) {
		n += int64(len(p))
		if now := time.Now(); now.Sub(start) > progressAfter && now.Sub(shown) > progressAfter/5 {
			shown = now
			a.notes.show("backup: " + units.BytesSize(float64(n)))
		}
		return f.Write(p)
	}), withLogs)
}

// meter is a writer that counts bytes.
type meter func(p []byte) (int, error)

func (m meter) Write(p []byte) (int, error) { return m(p) }

// syncedBackup syncs the received file and verifies it.
func syncedBackup(ctx context.Context, f *os.File) (backup.Header, error) {
	if err := f.Sync(); err != nil {
		return backup.Header{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return backup.Header{}, err
	}
	b, err := backup.Open(ctx, f, info.Size())
	if err != nil {
		return backup.Header{}, fmt.Errorf("the received file is not a complete backup: %w", err)
	}
	return b.Header, nil
}

// install renames the file to path. Without force it never replaces a file, also not one created in the meantime.
func install(tmp, path string, force bool) error {
	var err error = unix.EINVAL
	if !force {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.EEXIST) {
		return exists(path)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // with force, or where the file system can't do it
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("rename the backup to %s: %w", path, err)
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (a *app) verifyBackup(ctx context.Context, path string) error {
	b, closeFile, err := backup.OpenPath(ctx, path)
	if err != nil {
		return err
	}
	defer closeFile()
	if err := b.CheckDatabase(ctx, ""); err != nil {
		return fmt.Errorf("backup %s: %w", path, err)
	}
	fmt.Fprintf(a.Out, "backup %s is complete: %s\n", path, about(b.Header))
	return nil
}

func about(h backup.Header) string {
	return fmt.Sprintf("made %s of store %s, database of %s (schema %d)%s", h.Created.UTC().Format(time.RFC3339), h.Instance,
		units.BytesSize(float64(h.DatabaseBytes)), h.Schema, textIf(h.WithLogs, " and logs"))
}
