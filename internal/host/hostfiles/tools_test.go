package hostfiles

import (
	"os"
	"slices"
	"strings"
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// lines formats mounts for comparison.
func lines(mounts []*storev1.ToolMount) (list []string) {
	for _, m := range mounts {
		mode := " ro"
		if m.GetWritable() {
			mode = " rw"
		}
		list = append(list, m.GetTool()+" "+m.GetSource()+" -> "+m.GetTarget()+mode)
	}
	return list
}

func TestResolveTools(t *testing.T) {
	home := tree(t, "dotfiles/claude/", ".claude -> dotfiles/claude", ".codex/", ".agents/", ".config/gh/", ".ssh/known_hosts",
		".cache/uv/", ".local/share/uv/", ".npm/", ".cache/agents-sandbox-apt/", ".config/opencode/", ".local/share/opencode/")
	listen(t, home+"/agent.1")
	must(t, os.Symlink("agent.1", home+"/agent"))
	names := []string{"claude", "codex", "git", "uv", "npm", "apt", "opencode"}
	mounts, broken := ResolveTools(names, home, env(map[string]string{"SSH_AUTH_SOCK": home + "/agent"}))
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	want := []string{
		"claude " + home + "/dotfiles/claude -> /home/agbox/.claude rw", // .claude.json does not exist
		"codex " + home + "/.codex -> /home/agbox/.codex rw",
		"codex " + home + "/.agents -> /home/agbox/.agents rw",
		"git " + home + "/agent.1 -> /ssh-agent ro",
		"git " + home + "/.config/gh -> /home/agbox/.config/gh ro",
		"git " + home + "/.ssh/known_hosts -> /home/agbox/.ssh/known_hosts rw",
		"uv " + home + "/.cache/uv -> /home/agbox/.cache/uv rw",
		"uv " + home + "/.local/share/uv -> /home/agbox/.local/share/uv rw",
		"npm " + home + "/.npm -> /home/agbox/.npm rw",
		"apt " + home + "/.cache/agents-sandbox-apt -> /var/cache/apt/archives rw",
		"opencode " + home + "/.config/opencode -> /home/agbox/.config/opencode rw",
		"opencode " + home + "/.local/share/opencode -> /home/agbox/.local/share/opencode rw",
	}
	if got := lines(mounts); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range mounts {
		must(t, Verify(m.GetSource()))
	}
}

// TestToolsOfAnEmptyHome: git, uv, npm and apt do without what the host lacks, also where a link leads nowhere.
func TestToolsOfAnEmptyHome(t *testing.T) {
	home := tree(t, ".npm -> none", ".config/gh/")
	for _, sock := range []string{"", home + "/gone"} {
		for _, tool := range validate.Tools() {
			var want []string
			if tool.Name == "git" {
				want = []string{"git " + home + "/.config/gh -> /home/agbox/.config/gh ro"}
			}
			strict := tool.Name == "claude" || tool.Name == "codex" || tool.Name == "opencode"
			mounts, broken := ResolveTools([]string{tool.Name}, home, env(map[string]string{"SSH_AUTH_SOCK": sock}))
			if !slices.Equal(lines(mounts), want) || len(broken) > 0 != strict || strict && broken[0].Field != "builtin_tools[0]" {
				t.Errorf("%s: got %v, %v", tool.Name, mounts, broken)
			}
		}
	}
}

func TestResolveToolsRefuses(t *testing.T) {
	home := tree(t, ".claude/", "file", ".config/gh/", ".claude.json -> /dev/null")
	for _, tt := range []struct {
		name, home, sock, want string
	}{
		{"claude", home, "", "needs ~/.claude.json, but " + home + "/.claude.json is not a file or directory"},
		{"codex", home, "", `builtin_tools[1]: the tool "codex" needs ~/.codex, but ` + home + `/.codex does not exist on this host; create it, or leave "codex" out`},
		{"npm", "", "", "needs ~/.npm, but the home directory of the daemon's user is unknown; set HOME for the daemon"},
		{"npm", "home", "", `the daemon's HOME "home" is not absolute`},
		{"git", home, "sock", `needs an absolute path in $SSH_AUTH_SOCK, which is "sock"`},
		{"git", home, home + "/file", "/file is not a socket; start an SSH agent"},
		{"vim", home, "", `builtin_tools[1] "vim" is not a known tool`},
	} {
		_, broken := ResolveTools([]string{"vim", tt.name}, tt.home, env(map[string]string{"SSH_AUTH_SOCK": tt.sock}))
		if len(broken) < 2 || broken[1].Field != "builtin_tools[1]" || !strings.Contains(broken[1].Message, tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, broken, tt.want)
		}
	}
}
