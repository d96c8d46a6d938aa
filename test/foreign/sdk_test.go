//go:build foreign

package foreign

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/need"
)

// fewestCalls is what the life of a disk takes at least, and fewestOfGoSDK2 what it takes gosdk2; a client that makes fewer
// has not come to its end.
const fewestCalls, fewestOfGoSDK2 = 200, 40

// TestSDKs has each SDK lead disks, snapshots and tags through all of their lives.
func TestSDKs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ecs20140526", "pop-core"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need.Has(t, need.Programs("node", "npm")...)
			live(t, fewestCalls, "node", filepath.Join(built, "npm", "life.js"), name)
		})
	}
	t.Run("alibaba-cloud-sdk-go", func(t *testing.T) {
		t.Parallel()
		live(t, fewestCalls, filepath.Join(built, "gosdk"), "life")
	})
	t.Run("darabonba-openapi", func(t *testing.T) {
		t.Parallel()
		live(t, fewestOfGoSDK2, filepath.Join(built, "gosdk2"))
	})
}

// live runs a client against a simulator of its own.
func live(t *testing.T, fewest int, program string, args ...string) {
	const role = "foreign"
	c := startCloud(t, 1, "--role="+role)
	client := command(t, program, args...)
	client.Env = append(c.environment(instanceOf(0)), "ECS_ROLE="+role)
	check(t, client, fewest)
}

// summary is the last line of a client.
var summary = regexp.MustCompile(`: (\d+) calls, (\d+) as expected$`)

// check runs a client to its end: all of its calls are to be as expected.
func check(t *testing.T, client *exec.Cmd, fewest int) {
	t.Helper()
	said, err := client.Output()
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	t.Log(lines[len(lines)-1])
	counts := summary.FindStringSubmatch(lines[len(lines)-1])
	if err != nil || counts == nil || counts[1] != counts[2] || len(lines) > 1 {
		t.Fatalf("%s: %v\n%s", client.Path, err, said)
	}
	if made, err := strconv.Atoi(counts[1]); err != nil || made < fewest {
		t.Errorf("%s calls were made, want %d at least", counts[1], fewest)
	}
}
