package hostfiles

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"pgregory.net/rapid"
)

// excluded applies the rules as a walk does: from the root down, until a directory is excluded.
func (e excludes) excluded(rel string, isDir bool) bool {
	for i, b := range rel {
		if b == '/' && e.match(rel[:i], true) {
			return true
		}
	}
	return e.match(rel, isDir)
}

func TestExcludes(t *testing.T) {
	tests := []struct {
		name     string
		patterns []string
		out      []string
		in       []string
	}{
		{"no pattern excludes nothing", nil, nil, []string{"a", "d/"}},
		{"a name without a slash matches at any depth", []string{"x"}, []string{"x", "d/x", "d/e/x", "x/y"}, []string{"xx", "d/ax"}},
		{"a leading slash anchors", []string{"/x"}, []string{"x", "x/y"}, []string{"d/x"}},
		{"a slash in the middle anchors", []string{"d/x"}, []string{"d/x"}, []string{"e/d/x", "x"}},
		{"a trailing slash wants a directory", []string{"x/"}, []string{"x/", "d/x/", "x/y"}, []string{"x", "d/x"}},
		{"a star does not cross a slash", []string{"d/*.o"}, []string{"d/a.o"}, []string{"d/e/a.o"}},
		{"leading stars are any depth", []string{"**/d/x"}, []string{"d/x", "a/b/d/x"}, []string{"d/a/x"}},
		{"stars in the middle are any depth", []string{"a/**/x"}, []string{"a/x", "a/b/x", "a/b/c/x"}, []string{"x", "b/a/x"}},
		{"trailing stars are the contents", []string{"a/**"}, []string{"a/b", "a/b/c"}, []string{"a/", "b"}},
		{"the last match decides", []string{"*.log", "!keep.log"}, []string{"a.log"}, []string{"keep.log", "d/keep.log"}},
		{"nothing comes back below an excluded directory", []string{"d/", "!d/x"}, []string{"d/", "d/x"}, nil},
		{"contents can be brought back", []string{"d/*", "!d/x"}, []string{"d/y"}, []string{"d/", "d/x"}},
		{"a backslash escapes", []string{`\!x`, `\#y`, `a\*b`}, []string{"!x", "#y", "a*b"}, []string{"x", "y", "aab"}},
		{"comments and blank lines are nothing", []string{"# x", "", "   "}, nil, []string{"# x", "x"}},
		{"trailing spaces are dropped unless escaped", []string{"x  ", `y\ `}, []string{"x", "y "}, []string{"y", "x  "}},
		{"brackets", []string{"[ab]1", "[!ab]2", "[]x]3", "[[:digit:]]4"}, []string{"a1", "c2", "]3", "x3", "94"}, []string{"c1", "a2", "a3", "a4"}},
		{"an inverted range is its first character", []string{"[z-a]1", "[z-ab]2", "[!z-ab]3"}, []string{"z1", "z2", "b2", "a3"}, []string{"a1", "m1", "a2", "z3", "b3"}},
		{"braces are no alternatives", []string{"{a,b}"}, []string{"{a,b}"}, []string{"a", "b"}},
		{"names need not be UTF-8", []string{"a\xff?"}, []string{"a\xff\xfe"}, []string{"a\xfe\xff"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := parseExcludes(tt.patterns)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range tt.out {
				checkExcluded(t, rules, p, true)
			}
			for _, p := range tt.in {
				checkExcluded(t, rules, p, false)
			}
		})
	}
}

func checkExcluded(t *testing.T, rules excludes, p string, want bool) {
	t.Helper()
	rel, isDir := strings.CutSuffix(p, "/")
	if got := rules.excluded(rel, isDir); got != want {
		t.Errorf("%q: excluded is %v, want %v", p, got, want)
	}
}

func TestPatternsThatNeverMatchAreRefused(t *testing.T) {
	for _, p := range []string{"[a", `x\`, "/", "!", "[]", "[[:nope:]]", "[/]", "[/-!]", `[a\`, "a//b", "//a", "a//", "a/**//", `a\//b`} {
		if _, err := parseExcludes([]string{p}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, want an invalid argument", p, err)
		}
	}
}

func TestTheUnknownClassIsQuotedAsWritten(t *testing.T) {
	if _, err := parseExcludes([]string{"[[:é:]]"}); err == nil || !strings.Contains(err.Error(), "unknown class [:é:]") {
		t.Error(err)
	}
}

// gitRepo is an empty repository to run git in, without any configuration of the host.
type gitRepo struct {
	t   testing.TB
	dir string
}

func newGitRepo(t testing.TB) gitRepo {
	r := gitRepo{t, t.TempDir()}
	r.run(nil, "init", "-q")
	return r
}

func (r gitRepo) run(stdin []byte, args ...string) []byte {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir)
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: nothing is ignored
		r.t.Fatalf("git %v: %v", args, err)
	}
	return out
}

// ignored returns the paths of a tree that git ignores. Paths that end in a slash are created as directories.
func (r gitRepo) ignored(t rapid.TB, patterns, paths []string) []string {
	entries, err := os.ReadDir(r.dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() != ".git" {
			must(t, os.RemoveAll(filepath.Join(r.dir, e.Name())))
		}
	}
	for _, p := range paths {
		full := filepath.Join(r.dir, p)
		if strings.HasSuffix(p, "/") {
			must(t, os.MkdirAll(full, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, nil, 0o644))
	}
	must(t, os.WriteFile(filepath.Join(r.dir, ".git/info/exclude"), []byte(strings.Join(patterns, "\n")+"\n"), 0o644))
	names := strings.ReplaceAll(strings.Join(paths, "\x00")+"\x00", "/\x00", "\x00") // git itself determines which are directories
	out := r.run([]byte(names), "check-ignore", "--no-index", "--stdin", "-z")
	return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	treeName = rapid.SampledFrom([]string{"a", "b", "ab", "ba", "aab", "a.b", "]", "a-b", "a b", "!a", "#a", "a*", "1", "B", "\xe9", "é", `a\b`, "{a}"})
	atom     = rapid.SampledFrom([]string{
		"a", "b", "ab", "*", "**", "***", "?", "/", "/", ".", "-", " ", "!", "#", `\`, `\a`, `\*`, `\ `, "{a}", "{a,b}", "é", "\xe9",
		"[ab]", "[!a]", "[^b]", "[a-b]", "[b-a]", "[!b-a]", "[]a]", "[]-a]", "[a-]", "[!]]", `[\]a]`, "[[:alpha:]]", "[[:upper:]a]", "[^[:digit:]]", "[a[:]", "[a/b]", "[[.a]",
		`[\a-b]`, "**/", "/**", "/**/", "/*/", "[", "]",
	})
)

// genTree generates paths that do not conflict: none is both a file and a directory.
func genTree(t *rapid.T) []string {
	var paths []string
	kinds := map[string]bool{} // is a directory
	for range rapid.IntRange(1, 12).Draw(t, "size") {
		names := rapid.SliceOfN(treeName, 1, 4).Draw(t, "path")
		clash := false
		for i := 1; i < len(names); i++ {
			dir, known := kinds[strings.Join(names[:i], "/")]
			clash = clash || known && !dir
		}
		p := strings.Join(names, "/")
		if _, known := kinds[p]; known || clash {
			continue
		}
		for i := 1; i < len(names); i++ {
			kinds[strings.Join(names[:i], "/")] = true
		}
		kinds[p] = rapid.Bool().Draw(t, "dir")
	}
	for p, dir := range kinds {
		if dir {
			p += "/"
		}
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

func genPattern(t *rapid.T) string {
	if rapid.IntRange(0, 2).Draw(t, "kind") > 0 { // mostly valid patterns
		return rapid.SampledFrom([]string{"", "!", "/", "!/", "**/"}).Draw(t, "head") +
			strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "*", "**", "a*", "?b", "[ab]*", "*b"}), 1, 4).Draw(t, "elements"), "/") +
			rapid.SampledFrom([]string{"", "", "/", "/**", "/*"}).Draw(t, "tail")
	}
	return strings.Join(rapid.SliceOfN(atom, 1, 6).Draw(t, "atoms"), "")
}

// gitSlip finds stars that follow letters and end an element: git's manual says that they are one star ("a**/b" is
// "a*/b"). But git first strips the letters and then treats the rest as a whole element. This package follows the manual.
var gitSlip = regexp.MustCompile(`^[^*?[\\]*[^*?[\\/]\*\*+(/|$)`)

func TestExcludesAgreeWithGit(t *testing.T) {
	repo := newGitRepo(t)
	rapid.Check(t, func(t *rapid.T) {
		paths := genTree(t)
		var patterns, refused []string
		for range rapid.IntRange(1, 4).Draw(t, "patterns") {
			p := genPattern(t)
			switch _, err := parseExcludes([]string{p}); {
			case gitSlip.MatchString(strings.TrimPrefix(p, "!")):
			case err == nil:
				patterns = append(patterns, p)
			default:
				refused = append(refused, p)
			}
		}
		if len(refused) > 0 {
			if missed := repo.ignored(t, refused, paths); len(missed) > 0 {
				t.Errorf("patterns %q are refused, but git excludes %q with them", refused, missed)
			}
		}
		rules, err := parseExcludes(patterns)
		must(t, err)
		ignored := repo.ignored(t, patterns, paths)
		for _, p := range paths {
			rel, isDir := strings.CutSuffix(p, "/")
			if want, got := slices.Contains(ignored, rel), rules.excluded(rel, isDir); got != want {
				t.Errorf("patterns %q, path %q: excluded is %v, git: %v", patterns, p, got, want)
			}
		}
	})
}
