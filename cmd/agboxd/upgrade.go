package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// recordFiles are what the versions before the log kept beside the database, from which it could be rebuilt.
var recordFiles = []string{"s/*/record", "s/*/.record.tmp", "s/*/execs", "s/*/.execs.tmp", "agents/*", "agents"}

// removeRecordFiles removes them. They hold environment values.
func removeRecordFiles(dataDir string) error {
	var errs []error
	for _, pattern := range recordFiles {
		paths, err := filepath.Glob(filepath.Join(dataDir, pattern))
		errs = append(errs, err)
		for _, path := range paths {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
