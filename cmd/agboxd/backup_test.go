package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A backup needs no engine, and can be restored.
func TestAScheduledBackup(t *testing.T) {
	file := homed(t)
	shim, dir := filepath.Join(t.TempDir(), "shim"), filepath.Join(t.TempDir(), "kept")
	writeConfig(t, shim, "no program")
	writeConfig(t, file, "[http]\nlisten = \"127.0.0.1:0\"\n[docker]\nhost = \"unix:///nonexistent/docker.sock\"\n"+
		"[backup]\ninterval = \"1h\"\ndir = \""+dir+"\"\n")
	for _, made := range []string{"1", "0"} { // the second start is too early for another one
		ctx, stop := context.WithCancel(context.Background())
		log, ended := &lines{more: make(chan struct{})}, make(chan int)
		go func() { ended <- run(ctx, []string{"--shim", shim}, log, log) }()
		url := "http://" + field(t, log.next(t, "http serves"), "listen")
		if made == "1" {
			log.next(t, "a scheduled backup was made", dir)
		}
		scrape(t, url, `agboxd_backups_total{result="ok"} `+made, `agboxd_backups_total{result="error"} 0`,
			"agboxd_backup_last_success_timestamp_seconds 1.", "e+09")
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("the daemon ended with %d", code)
		}
	}
	backups, err := filepath.Glob(filepath.Join(dir, "agbox-*.backup"))
	if err != nil || len(backups) != 1 {
		t.Fatalf("%v, %v", backups, err)
	}
	if info, err := os.Stat(backups[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if code, out, errs := outcome("restore", backups[0]); code != exitOK || !strings.Contains(out, "is restored") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}
