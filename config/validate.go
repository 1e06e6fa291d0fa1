package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate checks every value and returns all that is wrong, joined: each error names its key, the value and the way
// out.
func (c Config) Validate() error {
	r := c.Runtime
	return errors.Join(
		listen("http.listen", c.HTTP.Listen),
		engineHost("docker.host", c.Docker.Host),
		subnetPool("docker.subnet_pool", c.Docker.SubnetPool),
		between("docker.pull_timeout", c.Docker.PullTimeout, time.Second, 24*time.Hour),
		zeroOrFrom("runtime.idle_ttl", r.IdleTTL, time.Second),
		zeroOrFrom("runtime.event_retention_ttl", r.EventRetentionTTL, time.Second),
		oneOf("runtime.interrupted_create", r.InterruptedCreate, InterruptedCreateResume, InterruptedCreateFail),
		oneOf("runtime.engine_death", r.EngineDeath, EngineDeathRestart, EngineDeathFail),
		between("runtime.stop_grace", r.StopGrace, 0, time.Hour),
		between("runtime.cancel_grace", r.CancelGrace, 0, time.Hour),
		between("runtime.resync_interval", r.ResyncInterval, time.Second, time.Hour),
		workers("runtime.workers", r.Workers),
		oneOf("runtime.orphan_sweep", r.OrphanSweep, OrphanSweepRemove, OrphanSweepDryRun),
		outputRoot("artifacts.exec_output_root", c.Artifacts.ExecOutputRoot),
		logLimit("artifacts.exec_log_limit", c.Artifacts.ExecLogLimit),
		oneOf("log.level", string(c.Log.Level), "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, LogFormatJSON, LogFormatText),
	)
}

func listen(key, value string) error {
	if value == HTTPOff {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf(`%s: %q is not host:port; write one like "127.0.0.1:9478", or "off"`, key, value)
	}
	return nil
}

func engineHost(key, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	switch {
	case err == nil && u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		return nil
	case err == nil && u.Scheme == "tcp" && u.Port() != "" && u.Path == "":
		return nil
	}
	return fmt.Errorf(`%s: %q is not an engine's address; write one like "unix:///var/run/docker.sock" or `+
		`"tcp://127.0.0.1:2375", or "" for $DOCKER_HOST`, key, value)
}

func subnetPool(key string, value netip.Prefix) error {
	if !value.Addr().Is4() {
		return fmt.Errorf(`%s: %q is not an IPv4 block; write one like "10.213.0.0/16"`, key, value)
	}
	if value.Bits() < 8 || value.Bits() > 24 {
		return fmt.Errorf("%s: %q has the wrong size; write a block between /8 and /24", key, value)
	}
	if value != value.Masked() {
		return fmt.Errorf("%s: %q is not the start of its block; write %q", key, value, value.Masked())
	}
	return nil
}

func between(key string, value, low, high time.Duration) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %q is out of range; write a duration from %q to %q", key, value, low, high)
	}
	return nil
}

// zeroOrFrom accepts "0", which means never, and anything from low on.
func zeroOrFrom(key string, value, low time.Duration) error {
	if value != 0 && value < low {
		return fmt.Errorf(`%s: %q is out of range; write a duration from %q on, or "0" for never`, key, value, low)
	}
	return nil
}

func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is not known; write one of %s", key, value, strings.Join(allowed, ", "))
}

func workers(key string, value int) error {
	if value < 1 || value > 64 {
		return fmt.Errorf("%s: %d is out of range; write a number from 1 to 64", key, value)
	}
	return nil
}

func outputRoot(key, value string) error {
	if value == "" || filepath.IsAbs(value) && filepath.Clean(value) != "/" {
		return nil
	}
	return fmt.Errorf(`%s: %q is not a directory of its own; write an absolute path, or "" for the default`, key, value)
}

func logLimit(key string, value Size) error {
	if value < 0 {
		return fmt.Errorf(`%s: %d is negative; write a size like "1GiB", or "0" for no limit`, key, value)
	}
	return nil
}
