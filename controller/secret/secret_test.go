package secret

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/store"
)

const box = "box-1"

type world struct {
	*testing.T
	*Keeper
	dir    *execjournal.Dir
	paths  execjournal.Paths
	source string
	log    strings.Builder
	refuse string
	roots  string // of the host
	live   []string
	sb     store.Sandbox
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, source: filepath.Join(t.TempDir(), "token")}
	w.dir = execjournal.New(filepath.Join(t.TempDir(), "logs"), filepath.Join(t.TempDir(), "s"))
	var err error
	if w.paths, err = w.dir.Prepare(box); err != nil {
		t.Fatal(err)
	}
	w.restart()
	return w
}

func (w *world) restart() {
	w.Keeper = New(Options{
		Store: w, Files: w.dir, Refuses: func(string) string { return w.refuse }, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		Authority: func(id string) ([]byte, error) { return []byte("authority of " + id), nil },
		Trusted:   func() []byte { return []byte(w.roots) },
	})
}

func (w *world) want(spec *agboxv1.CreateSpec) {
	w.sb, w.live = store.Sandbox{ID: box, Spec: spec}, []string{box}
	w.follow(w.Context())
	w.Want(w.sb)
}

func (w *world) LiveIDs() []string { return w.live }

func (w *world) Sandbox(context.Context, string) (store.Sandbox, error) { return w.sb, nil }

func (w *world) write(text string) {
	w.Helper()
	if err := os.WriteFile(w.source+".new", []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(w.source+".new", w.source); err != nil {
		w.Fatal(err)
	}
}

func (w *world) spec(target string) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Secrets: []*agboxv1.SecretSpec{{Name: "token", File: w.source, Target: target}, {Name: "later", File: w.source}}}
}

// has checks what PID 1 finds.
func (w *world) has(target, value string) {
	w.Helper()
	s, err := w.dir.Secret(box, "", "token")
	if value == "" && errdefs.IsNotFound(err) {
		return
	}
	if err != nil || s.Target != target || string(s.Value) != value {
		w.Errorf("%+v, %v", s, err)
	}
	if _, err := w.dir.Secret(box, "", "later"); !errdefs.IsNotFound(err) {
		w.Errorf("a secret without target is delivered: %v", err)
	}
	if strings.Contains(w.log.String(), value) {
		w.Errorf("the log has the value:\n%s", w.log.String())
	}
}

func (w *world) deliver() {
	w.Helper()
	if err := w.Deliver(box); err != nil {
		w.Error(err)
	}
}

func TestASecretFollowsItsFile(t *testing.T) {
	w := newWorld(t)
	w.write("value-1")
	w.want(w.spec("/run/secrets/token"))
	w.deliver()
	w.has("/run/secrets/token", "value-1")
	w.write("value-2") // of the same size, within one tick of the clock
	w.deliver()
	w.has("/run/secrets/token", "value-2")

	if err := os.Remove(w.source); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	w.has("/run/secrets/token", "value-2")
	if got := w.Problems(box); len(got) != 1 || !strings.Contains(got[0], "does not exist on this host; the sandbox keeps the last value") || w.Unreadable() != 1 {
		t.Error(got)
	}
	w.want(w.spec("/etc/token"))
	w.deliver()
	w.has("/etc/token", "value-2")
	w.restart()
	w.want(w.spec("/etc/token"))
	w.deliver()
	w.has("/etc/token", "value-2")
	w.write("value-3")
	w.deliver()
	w.has("/etc/token", "value-3")
	if got := w.Problems(box); got != nil || w.Unreadable() != 0 {
		t.Error(got)
	}

	w.refuse = "lies outside of mounts.allow"
	w.write("value-4")
	w.deliver()
	w.has("/etc/token", "value-3")

	w.want(&agboxv1.CreateSpec{})
	w.deliver()
	w.has("", "")
	if got := w.Problems(box); got != nil || w.Unreadable() != 0 {
		t.Error(got)
	}
}

func TestASecretWithoutAnyValueIsAnError(t *testing.T) {
	w := newWorld(t)
	w.want(w.spec("/t"))
	if err := w.Deliver(box); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
	if err := w.Deliver("unknown"); err != nil {
		t.Error(err)
	}
	if err := w.dir.Remove(box); err != nil {
		t.Fatal(err)
	}
	w.write("value-1")
	if err := w.Deliver(box); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	w.live = nil
	w.scan(t.Context()) // it is not live any more
	if err := w.Deliver(box); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(w.paths.Ctl); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a removed sandbox has files again")
	}
}

// A daemon that was killed leaves the old value or the new one, and perhaps a temporary file.
func TestASecretThatWasBeingWritten(t *testing.T) {
	w := newWorld(t)
	temp := filepath.Join(w.paths.Ctl, "exec", execjournal.TempName("token", "secret"))
	leave := func() {
		if err := os.WriteFile(temp, []byte(`{"val`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() {
		t.Helper()
		if _, err := os.Lstat(temp); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the temporary file is left")
		}
	}
	leave()
	w.write("value-1")
	w.want(w.spec("/t"))
	w.deliver()
	w.has("/t", "value-1")
	gone()
	leave()
	w.restart()
	w.want(&agboxv1.CreateSpec{}) // removed by an update before the kill
	w.deliver()
	w.has("", "")
	gone()
}

func TestRunDeliversWithinTwoSeconds(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Dir(w.source)
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, "..v"+version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "..v"+version, "token"), []byte("value-"+version), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	swap := func(version string) {
		if err := os.Symlink("..v"+version, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("1")
	if err := os.Symlink("..data/token", w.source); err != nil {
		t.Fatal(err)
	}
	watch, err := hostfiles.NewDirWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	w.o.Watch = watch
	w.live, w.sb = []string{box}, store.Sandbox{ID: box, Spec: w.spec("/t")} // no pass comes
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Keeper.Run(ctx) }()
	defer func() { cancel(); <-done }()
	within := func(value string) {
		t.Helper()
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			if s, err := w.dir.Secret(box, "", "token"); err == nil && string(s.Value) == value {
				t.Logf("%s after %s", value, time.Since(began))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("no %s", value)
	}
	within("value-1")
	swap("2")
	within("value-2")
	if err := os.WriteFile(filepath.Join(dir, "..v2", "token"), []byte("value-3"), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	within("value-3")
}

func TestSecretsOfServicesAreFiles(t *testing.T) {
	w := newWorld(t)
	w.write("value-1")
	spec := func(targets ...string) *agboxv1.CreateSpec {
		db := &agboxv1.ServiceSpec{Name: ".."}
		for _, target := range targets {
			db.Secrets = append(db.Secrets, &agboxv1.SecretSpec{Name: "token", File: w.source, Target: target})
		}
		return &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{db}}
	}
	dir, err := w.dir.ServiceSecrets(box, "..")
	if err != nil {
		t.Fatal(err)
	}
	files := func() (names string) {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			names += f.Name() + " "
		}
		return names
	}
	w.want(spec("/run/secrets/a"))
	w.deliver()
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode() != 0o444 || files() != "a " {
		t.Errorf("%v, %v, %q", info, err, files())
	}
	if got := w.dir.SecretValues(box, ".."); got["a"] != "value-1" {
		t.Error(got)
	}
	w.restart() // after an update that no pass has seen
	w.want(spec("/run/secrets/b"))
	w.deliver()
	if files() != "b " {
		t.Error(files())
	}
	w.restart()
	w.want(spec())
	w.deliver()
	if files() != "" {
		t.Error(files())
	}
}

// What the sandbox's own containers have cannot take the place of what no container has.
func TestNoSpecHasTheNamesOfInjection(t *testing.T) {
	for want, spec := range map[string]*agboxv1.CreateSpec{
		"optional_services[0].name": {OptionalServices: []*agboxv1.ServiceSpec{{Name: execjournal.Injector, Image: "x"}}},
		"required_services[0].name": {RequiredServices: []*agboxv1.ServiceSpec{{Name: execjournal.Injector, Image: "x"}}},
		"secrets[0].name":           {Secrets: []*agboxv1.SecretSpec{{Name: execjournal.AuthoritySecret, File: "/k"}}},
	} {
		spec.Image = "x"
		if errs := validate.Create(spec); !strings.Contains(errs.Error(), want) {
			t.Errorf("%v, want an error of %s", errs, want)
		}
	}
}

// A value that no request can have is a problem that is shown, and no reason to keep a former one.
func TestAValueThatNoRequestCanHave(t *testing.T) {
	w := newWorld(t)
	spec := w.spec("")
	spec.Secrets[0].Inject = []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${token}"}}
	for value, want := range map[string]string{
		"value-1\n": "", "two\nlines": "its value is not one line of printable ASCII", "": "its value is empty",
		strings.Repeat("x", 17<<10): "its value has more than 16384 bytes",
	} {
		w.write(value)
		w.want(spec)
		w.deliver()
		got := strings.Join(w.Problems(box), "\n")
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A rule for one source never finds the value of another, however long its policy or the source is late.
func TestASecretForRequestsIsOfItsSource(t *testing.T) {
	w := newWorld(t)
	w.write("value-1")
	spec := w.spec("")
	spec.Secrets[0].Inject = []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${token}"}}
	w.want(spec)
	w.deliver()
	next := proto.CloneOf(spec)
	next.Secrets[0].File = w.source + ".other"
	next.Secrets[0].Inject[0].Host = "b.example"
	w.want(next)
	if err := w.Deliver(box); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("%v for a source that is missing", err)
	}
	found := func(source, want string) {
		t.Helper()
		if got, _ := os.ReadFile(w.dir.InjectedSecret(box, "token", source)); string(got) != want {
			t.Errorf("the value of %s is %q, want %q", source, got, want)
		}
	}
	found(next.Secrets[0].File, "")
	if err := os.WriteFile(next.Secrets[0].File, []byte("value-2"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	found(next.Secrets[0].File, "value-2")
	found(w.source, "")
}

// The value of a secret that is added to requests is where no container has it, and the sandbox trusts the authority for it.
func TestASecretForRequestsStaysOutside(t *testing.T) {
	w := newWorld(t)
	w.write("value-1")
	spec := w.spec("")
	spec.Secrets[0].Inject = []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${token}"}}
	path := w.dir.InjectedSecret(box, "token", w.source)
	outside := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	for _, value := range []string{"value-1", "value-2"} {
		w.write(value)
		w.want(spec)
		w.deliver()
		outside(value)
		if s, err := w.dir.Secret(box, "", "token"); !errdefs.IsNotFound(err) {
			t.Errorf("PID 1 finds %+v, %v", s, err)
		}
		if s, err := w.dir.Secret(box, "", execjournal.AuthoritySecret); err != nil || !s.Roots || s.Target != "" || string(s.Value) != "authority of "+box {
			t.Errorf("PID 1 finds %+v, %v", s, err)
		}
		w.restart()
	}
	private, err := os.Stat(filepath.Dir(filepath.Dir(path)))
	if err != nil || private.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", private, err)
	}

	if err := os.Remove(w.source); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.want(spec)
	w.deliver()
	outside("value-2")
	if problems := w.Problems(box); len(problems) != 1 || !strings.HasPrefix(problems[0], "secret token: ") {
		t.Error(problems)
	}
	w.want(w.spec("")) // without the rule
	w.deliver()
	outside("")
	if s, err := w.dir.Secret(box, "", execjournal.AuthoritySecret); !errdefs.IsNotFound(err) {
		t.Errorf("the authority is left: %+v, %v", s, err)
	}
	if strings.Contains(w.log.String(), "value-") {
		t.Error(w.log.String())
	}
}

// The sandbox gets the certificates of the host beside its authority, and keeps the last ones if the host has none any more.
func TestTheHostsCertificatesComeWithTheAuthority(t *testing.T) {
	w := newWorld(t)
	w.write("value")
	spec := w.spec("")
	spec.Secrets[0].Inject = []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${token}"}}
	delivered := func(want string) {
		t.Helper()
		w.want(spec)
		w.deliver()
		if s, err := w.dir.Secret(box, "", execjournal.AuthoritySecret); err != nil || string(s.Others) != want || string(s.Value) != "authority of "+box {
			t.Errorf("%+v, %v, want %q", s, err, want)
		}
	}
	delivered("")
	for _, roots := range []string{"one", "two"} {
		w.roots = roots
		delivered(roots)
	}
	w.restart()
	delivered("two")
	w.roots = ""
	delivered("two")
	w.restart()
	delivered("two")
	w.roots = "three"
	delivered("three")

	rules := spec.Secrets[0].Inject
	spec.Secrets[0].Inject, spec.Secrets[0].Target = nil, "/t"
	w.want(spec)
	w.deliver()
	spec = w.spec("")
	spec.Secrets[0].Inject = rules
	delivered("three")
}

// The run directory may be lost while the daemon runs, and a pass makes it again: what was delivered is delivered again.
func TestLostDirectoriesGetTheirSecretsAgain(t *testing.T) {
	w := newWorld(t)
	w.write("value")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(w.source, old, old); err != nil {
		t.Fatal(err)
	}
	spec := w.spec("")
	spec.Secrets = append(spec.Secrets, &agboxv1.SecretSpec{
		Name: "outside", File: w.source, Inject: []*agboxv1.InjectRule{{Host: "a.example", Header: "X: ${outside}"}},
	})
	w.want(spec)
	w.deliver()
	w.deliver()
	if err := os.RemoveAll(w.paths.Ctl); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dir.Prepare(box); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	for _, one := range append(secretsOf(spec), secret{file: execjournal.AuthoritySecret}) {
		if _, err := w.dir.Secret(box, one.service, one.file); err != nil {
			t.Errorf("%s: %v", one, err)
		}
	}
}
