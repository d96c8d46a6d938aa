package shell

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/internal/escape"
)

// hostile are words that are more than an argument if they are not quoted.
var hostile = []string{
	"x;touch OWNED;: \x1b[8m", "$(touch OWNED)", "`touch OWNED`", "a'; touch OWNED; '", `a"; touch OWNED; "`, "a\ntouch OWNED\n", "a\rb", "&touch OWNED&", "|touch OWNED",
	"> OWNED", "~", "~root", "*", "?", "[a]", "{a,b}", "$HOME", "${HOME}", "!!", "#", "a #b", `a\`, `\`, `\'`, "'", "''", `"`, "", " ", "=ls", "a=b", "\u202ecod", "\u0085", "\x7f",
	"\U000e0041", "磁盘", "é b", "--flag", "(", "a\tb", "\x01'\\''\x01; touch OWNED", "%s", "^a", "a\\\nb", "\x9b2J", "\xff", "<(touch OWNED)", "\u00a0", "\u3000x", "a\u3164b", "a\ufe0f",
}

// shells are those of the machine; each gets every word back as it was. A shell without $'...' gets another word, but runs nothing.
func TestEveryShellGetsTheWords(t *testing.T) {
	for _, name := range []string{"bash", "zsh", "ksh", "busybox", "dash", "sh"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		knows := slices.Contains([]string{"bash", "zsh", "ksh", "busybox"}, name)
		for _, word := range hostile {
			directory := t.TempDir()
			args := []string{"-c", New("printf", "<%s>", word, "last").String()}
			if name == "busybox" {
				args = append([]string{"sh"}, args...)
			}
			command := exec.Command(path, args...)
			command.Dir, command.Env = directory, []string{"PATH=/usr/bin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
			out, err := command.CombinedOutput()
			if got, want := string(out), "<"+word+"><last>"; err != nil || got != want && (knows || !strings.HasSuffix(got, "><last>")) {
				t.Errorf("%s: %q becomes %q, %v", name, word, got, err)
			}
			if left, err := exec.Command("ls", directory).Output(); err != nil || len(left) > 0 {
				t.Errorf("%s: %q has made %s, %v", name, word, left, err)
			}
		}
	}
}

func TestCommandsAreWritten(t *testing.T) {
	for want, command := range map[string]Command{
		"kubectl get pod db-0":                               New("kubectl", "get", "pod", "db-0"),
		"helm install 'a b' \\\n  --set 'x=y z'":             New("helm", "install", "a b").Line("--set", "x=y z"),
		"kubectl get pod a --output yaml > 'a b.yaml'":       New("kubectl", "get", "pod", "a", "--output", "yaml").To("a b.yaml"),
		`kubectl get $'a\343\205\244'`:                       New("kubectl", "get", "a\u3164"),
		`kubectl get $'\033[8m\047\134' '$x'`:                New("kubectl", "get", "\x1b[8m'\\", "$x"),
		`kubectl patch pv a --patch '{"a":{"b":"it'\''s"}}'`: New("kubectl", "patch", "pv", "a", "--patch", `{"a":{"b":"it's"}}`),
	} {
		text, err := json.Marshal([]Command{command})
		var read []string
		if command.String() != want || err != nil || json.Unmarshal(text, &read) != nil || !slices.Equal(read, []string{want}) {
			t.Errorf("%s and %s, %v; want %s", command, text, err, want)
		}
	}
}

// A command shows what is in it: it needs no escaping, which would change it.
func TestCommandsNeedNoEscaping(t *testing.T) {
	for _, word := range hostile {
		if command := New("kubectl", "get", word).String(); escape.Text(command) != command {
			t.Errorf("%q becomes %q", word, command)
		}
	}
}
