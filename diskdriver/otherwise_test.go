package diskdriver

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/ecssim"
)

// otherwise is a way in which ECS may be other than the simulator is by itself.
type otherwise struct {
	name   string
	set    func(*ecssim.Config) // nil: nothing
	faults []ecssim.Fault
}

func (o otherwise) apply(c *ecssim.Config) {
	if o.set != nil {
		o.set(c)
	}
}

// anomalies are what clients have met of ECS beside what is documented, by the
// numbers that the simulator's tests know them by.
var anomalies = []otherwise{
	{name: "A1", set: func(c *ecssim.Config) { c.Latency.AttachShown = 3 * time.Second }},
	{name: "A2", set: func(c *ecssim.Config) { c.Doubts.RefuseAttachWhileDetaching = true }},
	{name: "A3", set: func(c *ecssim.Config) { c.Doubts.HideDetaching = true }},
	{name: "A4", set: func(c *ecssim.Config) { c.Latency.DeviceVisible = 10 * time.Second }},
	{name: "A5", set: func(c *ecssim.Config) { c.Latency.InstanceReady = 30 * time.Second }},
	{name: "A6", set: func(c *ecssim.Config) {
		c.Latency.Initializing, c.Latency.FromSnapshot = 10*time.Second, time.Minute
	}},
	{name: "A7", set: func(c *ecssim.Config) { c.Latency.BurstReady = 10 * time.Second }},
	{name: "A8", set: func(c *ecssim.Config) { c.Latency.TagsVisible = 5 * time.Second }},
	{name: "A9", set: func(c *ecssim.Config) { c.Latency.Visible = 2 * time.Second }},
}

// doubts are the other sides of what ECS's sources disagree on. The field is
// that of ecssim.Doubts, or of ecssim.Config.
var doubts = []struct {
	otherwise
	field string
}{
	{otherwise{name: "in-use-404", set: func(c *ecssim.Config) { c.Doubts.InUseCode = ecssim.InUseCodes[1] }}, "InUseCode"},
	{otherwise{name: "detached-is-dependency", set: func(c *ecssim.Config) { c.Doubts.DetachedCode = ecssim.DetachedCodes[1] }}, "DetachedCode"},
	{otherwise{name: "detached-is-status", set: func(c *ecssim.Config) { c.Doubts.DetachedCode = ecssim.DetachedCodes[2] }}, "DetachedCode"},
	{otherwise{name: "conflict-409", set: func(c *ecssim.Config) { c.Doubts.ConflictStatus = 409 }}, "ConflictStatus"},
	{otherwise{name: "refuse-attach-while-detaching", set: func(c *ecssim.Config) { c.Doubts.RefuseAttachWhileDetaching = true }}, "RefuseAttachWhileDetaching"},
	{otherwise{name: "hide-detaching", set: func(c *ecssim.Config) { c.Doubts.HideDetaching = true }}, "HideDetaching"},
	{otherwise{name: "list-attaching", set: func(c *ecssim.Config) { c.Doubts.ListAttaching = true }}, "ListAttaching"},
	{otherwise{name: "refuse-less-than-snapshot", set: func(c *ecssim.Config) { c.Doubts.RefuseLessThanSnapshot = true }}, "RefuseLessThanSnapshot"},
	{otherwise{name: "snapshot-none-unattached", set: func(c *ecssim.Config) { c.Doubts.SnapshotUnattached = []string{} }}, "SnapshotUnattached"},
	{otherwise{name: "refuse-creating", set: func(c *ecssim.Config) { c.Doubts.RefuseCreating = ecssim.CreatingActions }}, "RefuseCreating"},
	{otherwise{name: "tags-as-tag-key", set: func(c *ecssim.Config) { c.Doubts.TagsAs = ecssim.TagForms[1] }}, "TagsAs"},
	{otherwise{name: "tags-as-key", set: func(c *ecssim.Config) { c.Doubts.TagsAs = ecssim.TagForms[2] }}, "TagsAs"},
	{otherwise{name: "forgive-unknown-snapshot", set: func(c *ecssim.Config) { c.Doubts.ForgiveUnknownSnapshot = true }}, "ForgiveUnknownSnapshot"},
	{otherwise{name: "no-task-for-level", set: func(c *ecssim.Config) { c.Doubts.NoTaskForLevel = true }}, "NoTaskForLevel"},
	{otherwise{name: "refuse-shared-online-resize", set: func(c *ecssim.Config) { c.Doubts.RefuseSharedOnlineResize = true }}, "RefuseSharedOnlineResize"},
	{otherwise{name: "resize-limit-too-large", set: func(c *ecssim.Config) { c.Doubts.ResizeLimitCode = ecssim.ResizeLimitCodes[1] }}, "ResizeLimitCode"},
	{otherwise{name: "unknown-key-400", set: func(c *ecssim.Config) { c.Doubts.UnknownKeyIs400 = true }}, "UnknownKeyIs400"},
	{otherwise{name: "forgive-unknown-disk", set: func(c *ecssim.Config) { c.ForgiveUnknownDisk = true }}, "ForgiveUnknownDisk"},
	{otherwise{name: "bind-failed-tokens", set: func(c *ecssim.Config) { c.BindFailedTokens = true }}, "BindFailedTokens"},
}

// everyOtherwise is all of them.
func everyOtherwise() []otherwise {
	all := slices.Clone(anomalies)
	for _, d := range doubts {
		all = append(all, d.otherwise)
	}
	return all
}

// usually is what the tests take for ECS's own way of taking snapshots of disks
// that were never attached.
var usually = []string{"cloud_essd", "cloud_auto"}

func TestEveryDoubtHasItsOtherSide(t *testing.T) {
	known := map[string]bool{}
	for _, d := range doubts {
		known[d.field] = true
		c := ecssim.Config{Doubts: ecssim.Doubts{SnapshotUnattached: usually}}
		before := reflect.ValueOf(c)
		d.set(&c)
		if reflect.DeepEqual(before.Interface(), c) {
			t.Errorf("%s changes nothing", d.name)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[ecssim.Doubts]()) {
		if !known[field.Name] {
			t.Errorf("the driver's tests don't know the other side of ecssim.Doubts.%s", field.Name)
		}
	}
}

// Why answers of a story are others on the other side of a doubt.
const (
	usedUp     = "a refused call uses its token up, so another one under its name has to wait until it is sure that nothing was made"
	unattached = "it makes snapshots of disks that were never attached"
	atOnce     = "a level changes at once"
	answered   = "a refused call uses its token up, and the same call gets the same answer for as long as ECS knows the token"
	crowded    = "of a disk that others have, a node that it is being attached to can't be told from one that has it"
	afterwards = "an attach that is refused while the disk is being detached is made after that"
	vague      = "a refusal that doesn't say that the disk is detached takes a read besides"
)

// differs are the doubts and stories of which that is so.
var differs = map[string]string{
	"bind-failed-tokens groups":                                  usedUp,
	"bind-failed-tokens late-sight":                              usedUp,
	"bind-failed-tokens lost-reply":                              usedUp,
	"bind-failed-tokens lost-reply-then-another-zone":            answered,
	"bind-failed-tokens snapshots":                               usedUp,
	"detached-is-dependency blind":                               vague,
	"detached-is-status blind":                                   vague,
	"list-attaching publish-handover":                            crowded,
	"list-attaching publish-shared":                              crowded,
	"list-attaching publish-shared-restart":                      crowded,
	"refuse-attach-while-detaching publish-handover":             afterwards,
	"refuse-attach-while-detaching publish-shared-restart":       afterwards,
	"no-task-for-level modify":                                   atOnce,
	"no-task-for-level resize-and-modify":                        atOnce,
	"snapshot-none-unattached accounts":                          unattached,
	"snapshot-none-unattached blind-to-snapshots":                unattached,
	"snapshot-none-unattached clone":                             unattached,
	"snapshot-none-unattached clone-of-what-grows":               unattached,
	"snapshot-none-unattached empty-answers":                     unattached,
	"snapshot-none-unattached extra-tags":                        unattached,
	"snapshot-none-unattached groups":                            unattached,
	"snapshot-none-unattached nobody-comes-back":                 unattached,
	"snapshot-none-unattached restore":                           unattached,
	"snapshot-none-unattached source-gone-before-the-copy-shows": unattached,
	"snapshot-none-unattached snapshots":                         unattached,
	"snapshot-none-unattached snapshots-unread":                  unattached,
}

// coreStories are those that `make test` tells under every doubt.
var coreStories = []string{"the-life-of-a-volume", "publish", "modify", "snapshots"}

// TestStoriesUnderEveryDoubt tells the stories with ECS on the other side of
// each doubt. What the driver answers has to be the same; the calls and the words
// may differ. With -long it is all stories.
func TestStoriesUnderEveryDoubt(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if !*long && !slices.Contains(coreStories, name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range doubts {
			t.Run(name+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					diff, reason := cmp.Diff(outcomes(text), outcomes(tell(t, text, d.otherwise))), differs[d.name+" "+name]
					if (diff == "") != (reason == "") {
						t.Errorf("answers differ, and should for this reason, if any: %q\n%s", reason, diff)
					}
				})
			})
		}
	}
}

// outcomes are the commands of a story, each with the code of its answer, or
// with how many things it lists.
func outcomes(story []byte) []string {
	var all []string
	for line := range strings.Lines(string(story)) {
		line = strings.TrimRight(line, "\n")
		last := len(all) - 1
		switch {
		case strings.HasPrefix(line, "> "):
			all = append(all, line+" -> ")
		case last < 0 || !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "  ECS: "):
		case strings.HasSuffix(all[last], "-> "):
			word, _, _ := strings.Cut(strings.Fields(line)[0], ":")
			all[last] += word
		default:
			all[last] += "."
		}
	}
	return all
}
