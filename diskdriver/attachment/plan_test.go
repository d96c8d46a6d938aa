package attachment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// states are all that DescribeDisks shows, and one that it doesn't yet.
var states = []disk.State{disk.Creating, disk.Available, disk.Attaching, disk.Attached, disk.Detaching, disk.ReIniting, disk.Modifying, "Unheard_of"}

// holderSets are who may have a disk, seen from the node i-here.
var holderSets = map[string][]disk.InstanceID{
	"nobody": nil, "here": {"i-here"}, "elsewhere": {"i-else"}, "both": {"i-else", "i-here"},
}

func seen(state disk.State, holders string, multiAttach bool) disk.Disk {
	d := disk.Disk{ID: "d-1", State: state, MultiAttach: multiAttach, Category: "cloud_essd"}
	for _, instance := range holderSets[holders] {
		d.Attachments = append(d.Attachments, disk.Attachment{Instance: instance})
	}
	return d
}

// The tables have a row for each state, and a column for nobody, here,
// elsewhere and both.
func checkPlan(t *testing.T, what, want string, of func(state disk.State, holders string) string) {
	t.Helper()
	var got strings.Builder
	for _, state := range states {
		fmt.Fprintf(&got, "%s:", state)
		for _, holders := range []string{"nobody", "here", "elsewhere", "both"} {
			fmt.Fprintf(&got, " %s", of(state, holders))
		}
		got.WriteByte('\n')
	}
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got.String())); diff != "" {
		t.Errorf("%s, on nobody, here, elsewhere, both (-want +got):\n%s", what, diff)
	}
}

func TestWhatAPublishDoesNext(t *testing.T) {
	for _, test := range []struct {
		what        string
		multiAttach bool
		p           Publication
		want        string
	}{
		{"a disk for one node", false, Publication{}, `
Creating: await await in_use in_use
Available: attach attach in_use in_use
Attaching: attach attach in_use in_use
In_use: await done in_use in_use
Detaching: await await await await
ReIniting: await await in_use in_use
Modifying: await done in_use in_use
Unheard_of: await await in_use in_use`},
		{"a disk for several nodes, shared", true, Publication{Shared: true}, `
Creating: await await await await
Available: attach attach attach attach
Attaching: attach attach attach attach
In_use: attach done attach done
Detaching: attach await attach await
ReIniting: await await await await
Modifying: await done await done
Unheard_of: await await await await`},
		{"a disk for several nodes, not shared", true, Publication{}, `
Creating: await await in_use in_use
Available: attach attach in_use in_use
Attaching: attach attach in_use in_use
In_use: attach done in_use in_use
Detaching: attach await await await
ReIniting: await await in_use in_use
Modifying: await done in_use in_use
Unheard_of: await await in_use in_use`},
		{"a disk for one node, by force", false, Publication{Force: true}, `
Creating: await await in_use in_use
Available: attach attach in_use in_use
Attaching: attach attach in_use in_use
In_use: await done in_use in_use
Detaching: await await await await
ReIniting: await await in_use in_use
Modifying: await done in_use in_use
Unheard_of: await await in_use in_use`},
	} {
		test.p.Instance = "i-here"
		checkPlan(t, test.what, test.want, func(state disk.State, holders string) string {
			return planned(t, test.p, seen(state, holders, test.multiAttach))
		})
	}
}

func TestForceTakesARegionalDiskAndNoOther(t *testing.T) {
	p := Publication{Instance: "i-here", Force: true}
	checkPlan(t, "a regional disk, by force", `
Creating: await await in_use in_use
Available: attach attach in_use in_use
Attaching: attach attach in_use in_use
In_use: await done forceAttach forceAttach
Detaching: await await forceAttach forceAttach
ReIniting: await await in_use in_use
Modifying: await done in_use in_use
Unheard_of: await await in_use in_use`, func(state disk.State, holders string) string {
		d := seen(state, holders, false)
		d.Category = "cloud_regional_disk_auto"
		return planned(t, p, d) // of a disk for one node ECS shows all that matters
	})
}

// planned is the step in words, or the Kind of the error, which names the holder.
func planned(t *testing.T, p Publication, d disk.Disk) string {
	t.Helper()
	next, err := p.next(d)
	if err == nil {
		return next.String()
	}
	if !strings.Contains(err.Error(), "i-else") {
		t.Errorf("%v doesn't name the holder", err)
	}
	return strings.ReplaceAll(disk.KindOf(err).String(), " ", "_")
}

// What ECS is doing, or has done, goes on whatever is known of the node; only a
// new call is spared.
func TestWhatAPublishToANodeThatRefusesTheDiskDoesNext(t *testing.T) {
	p := Publication{Instance: "i-here", Known: disk.Instance{Type: "ecs.old.large", Refuses: []disk.Category{"cloud_essd"}}}
	checkPlan(t, "a disk that the node refuses", `
Creating: await await in_use in_use
Available: blocked blocked in_use in_use
Attaching: attach attach in_use in_use
In_use: await done in_use in_use
Detaching: await await await await
ReIniting: await await in_use in_use
Modifying: await done in_use in_use
Unheard_of: await await in_use in_use`, func(state disk.State, holders string) string {
		next, err := p.next(seen(state, holders, false))
		if err != nil {
			return strings.ReplaceAll(disk.KindOf(err).String(), " ", "_")
		}
		return next.String()
	})
}
