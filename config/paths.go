package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// maxSocketPath is the longest path of a Unix socket in bytes (sun_path has 108, with a final NUL).
const maxSocketPath = 107

// Paths are the daemon's files and directories. All are absolute.
type Paths struct {
	// ConfigFile is the default path of the configuration file; the file may be missing.
	ConfigFile string
	// DataDir contains all files that must survive a reboot.
	DataDir string
	// Database is the bbolt file, in DataDir.
	Database string
	// RunDir contains files that a reboot may remove. None of them is mounted into a container.
	RunDir string
	// Socket is the gRPC socket, in RunDir. It is at most 107 bytes long.
	Socket string
	// Lock is the file that a running daemon locks, in RunDir.
	Lock string
}

// SystemPaths returns the paths of the system service: those that ResolvePaths finds in the environment of
// config/systemd/agboxd.service.
func SystemPaths() Paths {
	return Paths{
		ConfigFile: "/etc/agents-sandbox/config.toml",
		DataDir:    "/var/lib/agents-sandbox",
		Database:   "/var/lib/agents-sandbox/ids.db",
		RunDir:     "/run/agbox",
		Socket:     "/run/agbox/agboxd.sock",
		Lock:       "/run/agbox/agboxd.lock",
	}
}

// ResolvePaths returns the paths for the user uid by the XDG variables of getenv. Without XDG_RUNTIME_DIR the
// run directory is /run/agbox for root, and run in the data directory for others.
//
// It fails if a variable has a relative path, if a user other than root has no HOME, and if the socket's path is too long.
func ResolvePaths(getenv func(string) string, uid int) (Paths, error) {
	dataHome, dataErr := xdg(getenv, uid, "XDG_DATA_HOME", ".local/share")
	configHome, configErr := xdg(getenv, uid, "XDG_CONFIG_HOME", ".config")
	p := Paths{
		ConfigFile: filepath.Join(configHome, "agents-sandbox", "config.toml"),
		DataDir:    filepath.Join(dataHome, "agents-sandbox"),
	}
	runDir, runErr := runDir(getenv("XDG_RUNTIME_DIR"), p.DataDir, uid)
	if err := errors.Join(dataErr, configErr, runErr); err != nil {
		return Paths{}, err
	}
	p.Database = filepath.Join(p.DataDir, "ids.db")
	p.RunDir = runDir
	p.Socket = filepath.Join(runDir, "agboxd.sock")
	p.Lock = filepath.Join(runDir, "agboxd.lock")
	if len(p.Socket) > maxSocketPath {
		return Paths{}, fmt.Errorf("socket path %s is longer than %d bytes; set XDG_RUNTIME_DIR to a shorter one", p.Socket,
			maxSocketPath)
	}
	return p, nil
}

// xdg returns the directory of the variable name, or fallback in the home directory.
func xdg(getenv func(string) string, uid int, name, fallback string) (string, error) {
	if dir := getenv(name); dir != "" {
		return absolute(name, dir)
	}
	home := getenv("HOME")
	if home == "" && uid == 0 {
		home = "/root" // an init system starts services without HOME
	}
	if home == "" {
		return "", fmt.Errorf("neither %s nor HOME is set; set one of them", name)
	}
	home, err := absolute("HOME", home)
	return filepath.Join(home, fallback), err
}

func runDir(runtimeDir, dataDir string, uid int) (string, error) {
	switch {
	case runtimeDir != "":
		dir, err := absolute("XDG_RUNTIME_DIR", runtimeDir)
		return filepath.Join(dir, "agbox"), err
	case uid == 0:
		return "/run/agbox", nil
	}
	return filepath.Join(dataDir, "run"), nil
}

func absolute(name, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s is %q; set it to an absolute path", name, dir)
	}
	return dir, nil
}
