package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agbox/agbox/internal/host/naming"
)

// dataBytes is the size of the data directory if it is a separate file system that the storm fills.
const dataBytes = "192m"

// site is the directory tree of one storm. All evidence is below home.
type site struct {
	home    string
	socket  string // socket of the engine behind the proxy
	mounted bool
}

func (s *site) bin() string    { return filepath.Join(s.home, "bin") }
func (s *site) data() string   { return filepath.Join(s.home, "data") }
func (s *site) state() string  { return filepath.Join(s.data(), "agents-sandbox") }
func (s *site) ledger() string { return filepath.Join(s.home, "ledger") }
func (s *site) engine() string { return filepath.Join(s.home, "engine.sock") }
func (s *site) clock() string  { return filepath.Join(s.home, "clock.json") }
func (s *site) log() string    { return filepath.Join(s.home, "agboxd.log") }

// build creates the directories and the programs. With small, the data directory is a file system that can be filled.
func (s *site) build(ctx context.Context, small bool) error {
	for dir, perm := range map[string]os.FileMode{s.bin(): 0o755, s.data(): 0o700, s.ledger(): 0o777, filepath.Join(s.home, "config/agents-sandbox"): 0o700} {
		if err := errors.Join(os.MkdirAll(dir, perm), os.Chmod(dir, perm)); err != nil {
			return err
		}
	}
	for pkg, tags := range map[string]string{"./cmd/agboxd": "faults", "./cmd/agbox-shim": "", "./hack/storm/program": "", "./internal/testing/e2e/testdata/testagent": ""} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", tags, "-o", s.bin()+"/", pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	if small {
		if err := unix.Mount("tmpfs", s.data(), "tmpfs", 0, "size="+dataBytes+",mode=700"); err != nil {
			return fmt.Errorf("mount a small file system for the data directory (root is needed for the fault enospc): %w", err)
		}
		s.mounted = true
	}
	conf := fmt.Sprintf("[http]\nlisten = \"off\"\n[docker]\nhost = \"unix://%s\"\nsubnet_pool = \"10.%d.0.0/16\"\n[runtime]\nresync_interval = \"10s\"\nstop_grace = \"3s\"\ncancel_grace = \"2s\"\n"+
		"idle_ttl = \"3h\"\ncleanup_ttl = \"5h\"\n[pause]\nfreeze_duration = \"3h\"\n",
		s.engine(), 220+os.Getpid()%30)
	return os.WriteFile(filepath.Join(s.home, "config/agents-sandbox/config.toml"), []byte(conf), 0o600)
}

func (s *site) instance() string {
	id, err := os.ReadFile(filepath.Join(s.state(), "instance"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// sweep removes every object of this storm from the engine, and the mounts.
func (s *site) sweep() error {
	var errs []error
	if id := s.instance(); id != "" {
		label := "label=" + naming.Instance + "=" + id
		for _, script := range []string{
			"docker ps -aq --filter " + label + " | xargs -r docker rm -fv",
			"docker network ls -q --filter " + label + " | xargs -r docker network rm",
			"docker volume ls -q --filter " + label + " | xargs -r docker volume rm",
		} {
			if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("sweep: %w: %s", err, out))
			}
		}
	}
	return errors.Join(errs...)
}

// keepData copies the state from the small file system, as evidence, before it is unmounted.
func (s *site) keepData() error {
	if !s.mounted {
		return nil
	}
	out, err := exec.Command("cp", "-a", s.data(), filepath.Join(s.home, "data-kept")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("keep the data directory: %w: %s", err, out)
	}
	return nil
}

func (s *site) unmount() error {
	if !s.mounted {
		return nil
	}
	s.mounted = false
	return unix.Unmount(s.data(), unix.MNT_DETACH)
}

// daemon is the agboxd under test.
type daemon struct {
	site *site

	mu   sync.Mutex // one start or kill at a time
	cmd  *exec.Cmd
	done chan struct{}
}

func (d *daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.launch()
}

func (d *daemon) launch() error {
	log, err := os.OpenFile(d.site.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(d.site.bin(), "agboxd"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	home := d.site.home
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+home+"/run", "XDG_DATA_HOME="+d.site.data(), "XDG_CONFIG_HOME="+home+"/config", "DOCKER_HOST=",
		clockEnv+"="+d.site.clock())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // never nil after a kill
	d.cmd, d.done = cmd, done
	return nil
}

// kill kills the daemon, waits for its exit, and starts it again after the time away.
func (d *daemon) kill(away time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.cmd.Process.Kill() // it may have exited already
	<-d.done
	time.Sleep(away) // the fault itself: the daemon is down for this time
	return d.launch()
}

// ensure restarts a daemon that has exited without a kill, and reports whether it did.
func (d *daemon) ensure() (ended bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.done:
		return true, d.launch()
	default:
		return false, nil
	}
}

// end kills the daemon without a restart.
func (d *daemon) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

// dial returns a connection that reconnects after each restart of the daemon.
func (d *daemon) dial() (*grpc.ClientConn, error) {
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: 20 * time.Second}
	return grpc.NewClient("unix://"+d.site.home+"/run/agbox/agboxd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(soon))
}
