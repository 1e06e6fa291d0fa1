package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/privilege"
)

// Validate checks every value and returns all errors, joined. Each names its key, the value and what to write instead.
func (c Config) Validate() error {
	var errs []error
	for _, k := range table {
		if err := k.rule.check(k.field(&c).Interface()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.Name, err))
		}
	}
	if c.Socket.Group != "" && c.Socket.Mode == SocketModeOwner {
		errs = append(errs, fmt.Errorf("socket.mode: %q keeps the members of socket.group %q out; write %q, or remove one of the two keys",
			c.Socket.Mode, c.Socket.Group, SocketModeGroup))
	}
	if c.TCP.Listen != "" {
		for _, need := range [][2]string{{"tcp.cert", c.TCP.Cert}, {"tcp.key", c.TCP.Key}, {"tcp.client_ca", c.TCP.ClientCA}} {
			if need[1] == "" {
				errs = append(errs, fmt.Errorf("%s: tcp.listen needs it: agboxd serves no client without a certificate", need[0]))
			}
		}
	}
	return errors.Join(append(errs, c.E2B.validate())...)
}

// validate checks what the keys say together: keys and files pass through the gateway, so plain HTTP on another address than loopback has to be
// asked for.
func (e E2B) validate() error {
	switch {
	case e.Cert != "" && e.Key == "":
		return errors.New("e2b.key: e2b.cert needs it")
	case e.Cert == "" && e.Key != "":
		return errors.New("e2b.cert: e2b.key needs it")
	case e.Cert == "" && !e.AllowPlainHTTP && e.Listen != "" && e2bListen(e.Listen) == nil && !onLoopback(e.Listen):
		return fmt.Errorf("e2b.listen: %q is not on loopback, and without TLS everybody on the way can read the keys; set e2b.cert and e2b.key, "+
			`write an address like "127.0.0.1:3000", or allow it with e2b.allow_plain_http = true in a network that you trust`, e.Listen)
	}
	return nil
}

// onLoopback reports whether only this host reaches a host:port. A name other than localhost is not looked up: what it leads to may change.
func onLoopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// rule is a check of a key's values, with its description for users.
type rule struct {
	kind, text string
	check      func(value any) error
}

// ruleOf returns a rule for values of type T, the type of the key's field.
func ruleOf[T any](kind, text string, check func(T) error) rule {
	return rule{kind, text, func(value any) error { return check(value.(T)) }}
}

var (
	groupRule      = ruleOf("string", "a group of this host, or empty", knownGroup)
	socketModeRule = ruleOf("string", `"0600", "0660", or empty`, socketMode)

	tcpListenRule = ruleOf("string", `host:port, or empty`, tcpListen)
	file          = ruleOf("string", "an absolute path, or empty", absoluteFile)
	clientNames   = ruleOf("list", `names, such as ["alice", "ci.example.com"]`, noneEmpty)

	e2bListenRule = ruleOf("string", `host:port, or empty`, e2bListen)
	domainRule    = ruleOf("string", `a domain, such as "sandboxes.example.com" or "sandboxes.example.com:3000", or empty`, domain)
	images        = ruleOf("table", `images by name, such as {base = "debian:13"}`, templateImages)

	listenRule   = ruleOf("string", `host:port, or "off"`, listen)
	engineRule   = ruleOf("string", `"unix:///path", "tcp://host:port", or empty`, engineHost)
	subnetRule   = ruleOf("string", "an IPv4 block from /8 to /24", subnetPool)
	directory    = ruleOf("string", "an absolute path, or empty", ownDirectory)
	sizeOrNone   = ruleOf("size", `a size like "512KiB"; "0" for no limit`, notNegative)
	sizeOrAuto   = ruleOf("size", `a size like "512MiB"; "0" by the size of the disk`, notNegative)
	memoryOrNone = ruleOf("size", `"16MiB" or more; "0" for no limit`, leastMemory)
	sessionSize  = ruleOf("size", `"64KiB" or more`, leastSession)
	yesOrNo      = ruleOf("boolean", "true or false", func(bool) error { return nil })
	directories  = ruleOf("list", `absolute paths, such as ["/srv", "/home"]`, allAbsolute)
	privileges   = ruleOf("list", `capabilities and settings, such as ["NET_RAW", "seccomp=unconfined"]`, allPrivileges)
	addresses    = ruleOf("list", `IP addresses, such as ["10.0.0.2"]`, allAddresses)
	levels       = ruleOf("string", `"debug", "info", "warn" or "error"`, func(l Level) error {
		return oneOf("debug", "info", "warn", "error").check(string(l))
	})
)

// bounded accepts values from low to high, or of at least low if high is 0. Unless zero is empty it also accepts 0, whose meaning zero gives.
func bounded[T int | time.Duration](low, high T, zero string) rule {
	kind, noun, verb, none := "integer", "number", "%d", "0"
	if _, ok := any(low).(time.Duration); ok {
		kind, noun, verb, none = "duration", "duration", "%q", `"0"`
	}
	text, limits := literal(low)+" to "+literal(high), fmt.Sprintf("from "+verb+" to "+verb, low, high)
	if high == 0 {
		text, limits = literal(low)+" or more", fmt.Sprintf("of at least "+verb, low)
	}
	if zero != "" {
		text += fmt.Sprintf("; %s for %s", none, zero)
		limits += fmt.Sprintf(", or %s for %s", none, zero)
	}
	return ruleOf(kind, text, func(value T) error {
		if value == 0 && zero != "" || value >= low && (high == 0 || value <= high) {
			return nil
		}
		return fmt.Errorf(verb+" is out of range; write a %s %s", value, noun, limits)
	})
}

func oneOf(allowed ...string) rule {
	quoted := make([]string, len(allowed))
	for i, word := range allowed {
		quoted[i] = strconv.Quote(word)
	}
	return ruleOf("string", strings.Join(quoted, " or "), func(value string) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		return fmt.Errorf("%q is unknown; write one of %s", value, strings.Join(allowed, ", "))
	})
}

// knownGroup also looks the group up: a daemon whose group is misspelt would admit no client.
func knownGroup(value string) error {
	if value == "" {
		return nil
	}
	_, err := GroupID(value)
	return err
}

// GroupID returns the number of a group of this host, which name has as its name or number.
func GroupID(name string) (int, error) {
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%q is not a group of this host; make it (groupadd --system %s), or write another name or a number", name, name)
	}
	return strconv.Atoi(group.Gid)
}

func socketMode(value string) error {
	if value == "" || value == SocketModeOwner || value == SocketModeGroup {
		return nil
	}
	return fmt.Errorf("%q is unknown; write %q for the daemon's user alone, or %q for socket.group as well", value, SocketModeOwner, SocketModeGroup)
}

func e2bListen(value string) error {
	if value == "" || value != HTTPOff && listen(value) == nil {
		return nil
	}
	return fmt.Errorf(`%q is not host:port; write one like "127.0.0.1:3000", or "" for none`, value)
}

var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

func domain(value string) error {
	if value == "" || domainPattern.MatchString(value) {
		return nil
	}
	return fmt.Errorf(`%q is not a domain in lowercase; write one like "sandboxes.example.com" or "sandboxes.example.com:3000"`, value)
}

func templateImages(value map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if name == "" || value[name] == "" {
			errs = append(errs, fmt.Errorf("template %q has the image %q; write a name and an image reference", name, value[name]))
		}
	}
	return errors.Join(errs...)
}

func listen(value string) error {
	if value == HTTPOff {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf(`%q is not host:port; write one like "127.0.0.1:9478", or "off"`, value)
	}
	return nil
}

func tcpListen(value string) error {
	if value == "" || value != HTTPOff && listen(value) == nil {
		return nil
	}
	return fmt.Errorf(`%q is not host:port; write one like "0.0.0.0:9479", or "" for none`, value)
}

func absoluteFile(path string) error {
	if path == "" || filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf(`%q is not an absolute path; write one like "/etc/agents-sandbox/tls/cert.pem"`, path)
}

func noneEmpty(names []string) error {
	if slices.Contains(names, "") {
		return errors.New("a name is empty")
	}
	return nil
}

func engineHost(value string) error {
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
	return fmt.Errorf(`%q is not an engine's address; write one like "unix:///var/run/docker.sock" or `+
		`"tcp://127.0.0.1:2375", or "" for $DOCKER_HOST`, value)
}

func subnetPool(value netip.Prefix) error {
	if !value.Addr().Is4() {
		return fmt.Errorf(`%q is not an IPv4 block; write one like "10.213.0.0/16"`, value)
	}
	if value.Bits() < 8 || value.Bits() > 24 {
		return fmt.Errorf("%q has the wrong size; write a block between /8 and /24", value)
	}
	if value != value.Masked() {
		return fmt.Errorf("%q is not the start of its block; write %q", value, value.Masked())
	}
	return nil
}

func ownDirectory(value string) error {
	up := slices.Contains(strings.Split(value, "/"), "..") // behind a symbolic link it leads elsewhere than it reads
	if value == "" || filepath.IsAbs(value) && filepath.Clean(value) != "/" && !up {
		return nil
	}
	return fmt.Errorf(`%q is not an absolute path, without "..", of a directory other than "/"; write one, or "" for the default`, value)
}

// leastMemory enforces the lower bound of a spec's memory_limit.
func leastMemory(value Size) error {
	const least = 16 << 20
	if value != 0 && value < least {
		return fmt.Errorf(`%q is too small; write "16MiB" or more, or "0" for no limit`, value)
	}
	return nil
}

func leastSession(value Size) error {
	const least = 64 << 10
	if value < least {
		return fmt.Errorf(`%q is too small; write "64KiB" or more`, value)
	}
	return nil
}

func allAddresses(value []string) error {
	for _, text := range value {
		if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" {
			return fmt.Errorf(`%q is not an IP address; write one like "10.0.0.2"`, text)
		}
	}
	return nil
}

// allPrivileges accepts the words of the package privilege.
func allPrivileges(words []string) error {
	for _, word := range words {
		if !privilege.Known(word) {
			return fmt.Errorf("%q is no capability, such as \"NET_RAW\", nor \"seccomp=unconfined\" nor \"no_new_privileges=false\"", word)
		}
	}
	return nil
}

func allAbsolute(value []string) error {
	for _, path := range value {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("%q is not an absolute path without dots, double and final slashes; write %q", path, filepath.Clean("/"+path))
		}
	}
	return nil
}

func notNegative(value Size) error {
	if value < 0 {
		return fmt.Errorf(`%d is negative; write a size like "1GiB", or "0" for no limit`, value)
	}
	return nil
}
