package golden

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asProgram in the environment turns a test binary into the program that it tests.
const asProgram = "TOPODISK_TEST_AS_PROGRAM"

// Main is for TestMain of a program's package: it runs the tests, or main itself where Help asks for that.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Help returns what the program whose package is tested prints for the arguments and --help. It runs the test binary as
// that program, so that nothing has to be built for it. The package's TestMain calls Main.
func Help(t testing.TB, args ...string) string {
	t.Helper()
	help, err := Run(t, []string{"KUBECONFIG="}, append(args, "--help")...) // which --help would show as a default
	if err != nil {
		t.Fatalf("%v --help: %v", args, err)
	}
	return help
}

// graceful is for how long a program may clean up after the test that has started it.
const graceful = 10 * time.Second

// Command returns the program whose package is tested, with more variables in its environment. It is the test binary. The
// test's end is a SIGTERM for it, so that it takes away what it has made.
func Command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, graceful
	return cmd
}

// Run returns what the program prints; its error has that, too.
func Run(t testing.TB, env []string, args ...string) (string, error) {
	t.Helper()
	out, err := Command(t, env, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return string(out), err
}

// Address returns an address for the program to listen on. Its host is one of the many of the loopback network, so that no
// other test takes the port, which is free now, before the program does.
func Address(t testing.TB) string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// Kubeconfig returns a file that names one API server.
func Kubeconfig(t testing.TB, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var (
	flagLine    = regexp.MustCompile(`^ +(?:-\w, )?--([a-z0-9_-]+)(?: (\S+))? {2,}(.*)$`)
	flagDefault = regexp.MustCompile(` \(default (.*)\)$`)
)

// zeroes are the defaults that help leaves out, by the type that it names; a switch has none.
var zeroes = map[string]string{"": "`false`", "int": "`0`", "float": "`0`", "float32": "`0`", "duration": "`0s`"}

// Flags holds the section of a page that has the command for a heading against a table of the flags in its help. With
// -update it writes the section, which must be there.
func Flags(t testing.TB, page, command, help string) {
	t.Helper()
	var made strings.Builder
	made.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	rows := 0
	for text := range strings.Lines(help) {
		match := flagLine.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if match == nil {
			continue
		}
		meaning, fallback := match[3], zeroes[match[2]]
		if found := flagDefault.FindStringSubmatch(meaning); found != nil {
			meaning, fallback = strings.TrimSuffix(meaning, found[0]), "`"+strings.Trim(found[1], `"`)+"`"
		}
		if match[1] == "help" {
			fallback = ""
		}
		fmt.Fprintf(&made, "| `--%s` | %s | %s |\n", match[1], fallback, strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(meaning))
		rows++
	}
	if rows == 0 {
		t.Fatalf("%s --help has no flags:\n%s", command, help)
	}
	Section(t, page, command, made.String())
}

// Section holds what is below a heading of the second level in a page, up to the next one, against what the code makes
// of it. With -update it writes the section; tests of two packages must not write the same page at the same time.
func Section(t testing.TB, page, heading, made string) {
	t.Helper()
	current, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, section, found := strings.Cut(string(current), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, "## "+heading)
	}
	section, after, more := strings.Cut(section, "\n## ")
	if more {
		after = "\n## " + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+"\n## "+heading+"\n"+made+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(section, made); diff != "" {
		t.Errorf("%s, section %s, is stale; make docs-update mends it (-in the file, +as the code has it):\n%s", page, heading, diff)
	}
}
