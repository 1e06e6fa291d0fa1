package shim

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// options holds the parsed command line. agboxd writes the command line of PID 1 when it creates the container, and it never changes
// afterwards: a new version may add options and must still accept all old ones.
type options struct {
	verb        string
	defaultUser string   // the image's user
	user        string   // the sandbox's user; empty: agbox if the image has that user, else defaultUser
	dir         string   // working directory of the main process; empty: the container's
	logLimit    int64    // limit of each log of the main process, in bytes; 0: none
	hardened    bool     // commands start without capabilities
	gated       bool     // init starts nothing before agboxd releases it
	probe       bool     // init runs the command that probes the runtime before the release
	run         string   // random ID of this run of the container, set by init if it probes the runtime
	command     []string // the main process
	execID      string
	members     int // number of members of the memory reserve
}

func parse(args []string) (o options, ok bool) {
	if len(args) == 0 {
		return o, false
	}
	o.verb = args[0]
	if o.verb == reserveVerb && len(args) == 2 {
		var err error
		o.members, err = strconv.Atoi(args[1])
		return o, err == nil && o.members > 0
	}
	for i, arg := range args[1:] {
		if arg == "--" {
			o.command = args[i+2:]
			break
		}
		if !o.set(arg) {
			return o, false
		}
	}
	switch o.verb {
	case "init":
		return o, o.execID == "" && (len(o.command) > 0 || args[len(args)-1] != "--")
	case "main":
		return o, o.execID == "" && len(o.command) > 0
	case "exec":
		return o, execjournal.ValidExecID(o.execID) && o.command == nil
	}
	return o, false
}

func (o *options) set(arg string) (ok bool) {
	name, value, isFlag := strings.Cut(arg, "=")
	switch {
	case arg == "--gated":
		o.gated = true
	case arg == "--hardened":
		o.hardened = true
	case arg == "--probe":
		o.probe = true
	case isFlag && name == "--default-user":
		o.defaultUser = value
	case isFlag && name == "--user":
		o.user = value
	case isFlag && name == "--run":
		o.run = value
	case isFlag && name == "--dir":
		o.dir = value
		return value == "" || filepath.IsAbs(value)
	case isFlag && name == "--log-limit":
		var err error
		o.logLimit, err = strconv.ParseInt(value, 10, 64)
		return err == nil && o.logLimit >= 0
	case o.execID == "" && !strings.HasPrefix(arg, "-"):
		o.execID = arg
	default:
		return false
	}
	return true
}

// args returns the arguments with which init starts a helper process with the given verb.
func (o options) args(verb string) []string {
	list := []string{"agbox-shim", verb, "--default-user=" + o.defaultUser}
	if o.hardened {
		list = append(list, "--hardened")
	}
	if o.run != "" {
		list = append(list, "--run="+o.run)
	}
	if o.user != "" {
		list = append(list, "--user="+o.user)
	}
	return list
}

func (o options) mainArgs() []string {
	list := append(o.args("main"), "--dir="+o.dir, "--log-limit="+strconv.FormatInt(o.logLimit, 10), "--")
	return append(list, o.command...)
}
