package diskdriver

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/topodisk/topodisk/ecssim"
)

// asking are commands that lead to a call of each action, after those before.
var asking = map[string]struct{ before, command string }{
	"CreateDisk":                {"", "create disk-2 size=20Gi zones=a type=cloud_essd"},
	"DeleteDisk":                {"", "delete d-1"},
	"DescribeDisks":             {"", "get d-1"},
	"AttachDisk":                {"", "publish d-1 i-a1"},
	"DetachDisk":                {"publish d-1 i-a1", "unpublish d-1 i-a1"},
	"ResizeDisk":                {"", "expand d-1 size=30Gi"},
	"TagResources":              {"", "modify d-1 diskTags/team=b"},
	"UntagResources":            {"modify d-1 diskTags/team=b", "modify d-1 -diskTags/team="},
	"ModifyDiskSpec":            {"", "modify d-1 type=cloud_auto"},
	"ModifyDiskAttribute":       {"", "modify d-1 type=cloud_auto burstingEnabled=true"},
	"DescribeTasks":             {"", "modify d-1 type=cloud_auto"},
	"DescribeAvailableResource": {"", "capacity zones=a type=cloud_essd"},
	"CreateSnapshot":            {"", "snapshot snap-1 d-1"},
	"DescribeSnapshots":         {"", "list-snapshots"},
	"DeleteSnapshot":            {"snapshot snap-1 d-1", "delete-snapshot s-1"},
	"CreateSnapshotGroup":       {"", "group group-1 d-1"},
	"DescribeSnapshotGroups":    {"group group-1 d-1", "get-group ssg-1"},
	"DeleteSnapshotGroup":       {"group group-1 d-1", "delete-group ssg-1"},
}

// codeOfRefused is the code that the driver answers when ECS refuses the next
// call of an action.
func codeOfRefused(t *testing.T, action, code string, status int) (answer string) {
	ask := asking[action]
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
			Instances: []ecssim.Instance{{ID: "i-a1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
		}}
		s.do(strings.Fields("create disk-1 size=20Gi zones=a type=cloud_essd"))
		if ask.before != "" {
			s.do(strings.Fields(ask.before))
		}
		s.must(s.sim.AddFault(ecssim.Fault{Do: ecssim.FaultError, Action: action, Code: code, Status: status, Count: 1}))
		answer = s.do(strings.Fields(ask.command))
		if hit := s.sim.Faults()[0].Hit; hit != 1 {
			t.Errorf("%s: %d calls of %s were refused", ask.command, hit, action)
		}
	})
	lines := strings.Split(answer, "\n")
	first := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "ECS: ") })
	word, _, _ := strings.Cut(strings.Fields(lines[first])[0], ":")
	return word
}

// wantKnownCode refuses an answer that says nothing: Unknown, of any code of ECS,
// and Internal, of an ECS that was not well.
//
// Every answer is that of a Kind, of which none is Unknown.
func wantKnownCode(t *testing.T, action, code string, status int) {
	t.Helper()
	got := codeOfRefused(t, action, code, status)
	known := got == codes.OK.String() || got == codes.DeadlineExceeded.String()
	for _, a := range answers {
		known = known || got == a.code.String()
	}
	if !known || status >= 500 && got == codes.Internal.String() {
		t.Errorf("%s refused with %d %s: the driver answers %s", action, status, code, got)
	}
}

// TestNoAnswerOfECSIsUnknown tries the codes that ECS documents: one of each
// status for each action, or with -long all of them.
func TestNoAnswerOfECSIsUnknown(t *testing.T) {
	for _, action := range slices.Sorted(maps.Keys(asking)) {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			seen := map[int]bool{}
			for _, c := range ecssim.Codes(action) {
				if !seen[c.Status] || *long {
					wantKnownCode(t, action, c.Code, c.Status)
				}
				seen[c.Status] = true
			}
			wantKnownCode(t, action, "Never.Heard.Of", 418)
		})
	}
}
