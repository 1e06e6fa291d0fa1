package shim

import (
	"flag"
	"io"
	"path/filepath"
	"strconv"

	"github.com/agbox/agbox/internal/host/passwd"
)

// options holds the parsed command line. agboxd writes the command line of PID 1 when it creates the container, and it never changes
// afterwards: a new version may add options and must still accept all old ones.
type options struct {
	verb        string
	defaultUser string   // the image's user; of containers of older releases, which lack hostUser
	hostUser    string   // passwd.Own, the user agbox or one of another name, where the image lacks it; empty: it is not made
	user        string   // the sandbox's user; empty: that one, or without hostUser: agbox if the image has that user, else defaultUser
	own         []string // targets of named volumes
	parts       []string // volumes that are parts of the container's own file system, whose root is read-only
	dir         string   // working directory of the main process; empty: the container's
	logLimit    int64    // limit of each log of the main process, in bytes; 0: none
	hardened    bool     // commands start without capabilities, but for caps
	caps        caps     // capabilities that commands start with, as any user
	gain        bool     // with hardened: programs may grant privileges
	gated       bool     // init starts nothing before agboxd releases it
	probe       bool     // init runs the command that probes the runtime before the release
	entrypoint  []string // the image's ENTRYPOINT, which runs before everything else; empty: none runs
	entryMust   bool     // the start fails if entrypoint ends before it has executed its arguments
	entryNew    bool     // entrypoint runs only where the image has no user agbox
	bundle      string   // the file of certificates that the image's environment names; empty: none
	reports     bool     // the start of each run is reported to agboxd
	warn        string   // main: the warning of the report
	run         string   // random ID of this run of the container, set by init if it probes the runtime
	command     []string // the main process
}

func parse(args []string) (o options, ok bool) {
	if len(args) == 0 {
		return o, false
	}
	o.verb = args[0]
	f := flag.NewFlagSet(o.verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.gated, "gated", false, "")
	f.BoolVar(&o.hardened, "hardened", false, "")
	f.Var(&o.caps, "cap", "")
	f.BoolVar(&o.gain, "new-privileges", false, "")
	f.BoolVar(&o.probe, "probe", false, "")
	f.Func("entry", "", func(arg string) error { o.entrypoint = append(o.entrypoint, arg); return nil })
	f.BoolVar(&o.entryMust, "entry-must", false, "")
	f.BoolVar(&o.entryNew, "entry-new", false, "")
	f.BoolVar(&o.reports, "report", false, "")
	f.StringVar(&o.bundle, "bundle", "", "")
	f.StringVar(&o.defaultUser, "default-user", "", "")
	f.StringVar(&o.hostUser, "host-user", "", "")
	f.StringVar(&o.user, "user", "", "")
	f.StringVar(&o.warn, "warn", "", "")
	f.StringVar(&o.run, "run", "", "")
	f.Func("own", "", func(target string) error { o.own = append(o.own, target); return nil })
	f.Func("part", "", func(dir string) error { o.parts = append(o.parts, dir); return nil })
	f.StringVar(&o.dir, "dir", "", "")
	f.Int64Var(&o.logLimit, "log-limit", 0, "")
	if f.Parse(args[1:]) != nil || o.dir != "" && !filepath.IsAbs(o.dir) || o.logLimit < 0 {
		return o, false
	}
	if _, valid := passwd.ParseOwn(o.hostUser); o.hostUser != "" && !valid {
		return o, false
	}
	rest := f.Args()
	terminated := args[len(args)-len(rest)-1] == "--"
	if terminated {
		o.command = rest
	}
	switch o.verb {
	case "init":
		return o, terminated == (len(rest) > 0)
	case execVerb:
		return o, len(rest) == 1 && !terminated
	case serveVerb:
		return o, len(rest) == 0
	case "main":
		return o, terminated && len(rest) > 0
	}
	return o, false
}

// execVerb is the verb of an exec's supervisor. Its argument has room for the exec's ID: see showExec.
const execVerb = "exec"

// args returns the arguments with which init starts a helper process with the given verb.
func (o options) args(verb string) []string {
	list := []string{"agbox-shim", verb, "--default-user=" + o.defaultUser}
	if o.hostUser != "" {
		list = append(list, "--host-user="+o.hostUser)
	}
	if o.hardened {
		list = append(list, "--hardened")
	}
	for _, c := range o.caps {
		list = append(list, "--cap="+strconv.Itoa(int(c)))
	}
	if o.gain {
		list = append(list, "--new-privileges")
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
	list := append(o.args("main"), "--dir="+o.dir, "--log-limit="+strconv.FormatInt(o.logLimit, 10))
	if o.reports {
		list = append(list, "--report", "--warn="+o.warn)
	}
	return append(append(list, "--"), o.command...)
}
