package diskdriver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// TestADiskOf01IsFoundAfterTheUpgrade: disks of 0.1 have no tag for their state, and ECS refuses a call that differs from the one before with
// the same client token.
func TestADiskOf01IsFoundAfterTheUpgrade(t *testing.T) {
	for name, row := range map[string]struct {
		set     func(*ecssim.Config)
		refuse  bool         // the call of the version before
		differs bool         // ECS says that the calls differ
		state   disk.History // of the disk that there is in the end
	}{
		"shown at once":                     {func(*ecssim.Config) {}, false, false, disk.HistoryInUse},
		"shown late":                        {func(c *ecssim.Config) { c.Latency.Visible = 20 * time.Second }, false, true, disk.HistoryInUse},
		"its name is shown late":            {func(c *ecssim.Config) { c.Latency.TagsVisible = 20 * time.Second }, false, true, disk.HistoryInUse},
		"under way":                         {func(c *ecssim.Config) { c.Latency.API["CreateDisk"] = 30 * time.Second }, false, false, disk.HistoryInUse},
		"never made":                        {func(*ecssim.Config) {}, true, false, disk.HistoryNew},
		"never made, and its token is used": {func(c *ecssim.Config) { c.BindFailedTokens = true }, true, true, disk.HistoryNew},
	} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				row.set(&s.config)
				s.adopted = []string{disk.Creator}
				s.start() // anew
				underOldPolicy(t, s.sim)
				if row.refuse {
					s.must(s.sim.SetStock("cn-hangzhou-a", "cloud_essd", 0))
				}
				client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: s.sim})
				s.must(err)
				before := make(chan struct{})
				go func() {
					spec := disk.Spec{Name: "disk-1", Tags: disk.VolumeTags(nil, "disk-1", cluster, "", "")}
					delete(spec.Tags, disk.OwnerTag)
					defer close(before)
					_, _ = client.Create(t.Context(), spec, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}, disk.NewToken("disk-1", 1))
				}()
				time.Sleep(time.Second) // the version before ends here
				s.must(s.sim.SetStock("cn-hangzhou-a", "cloud_essd", ecssim.Unlimited))
				answer := ""
				for tries := 0; !strings.HasPrefix(answer, "OK"); tries++ {
					if tries > 20 {
						t.Fatal("there never is a disk: ", answer)
					}
					answer = s.say("create disk-1 size=20Gi zones=a type=cloud_essd upstream")
					time.Sleep(10 * time.Second)
				}
				<-before
				if got := s.sim.Count("CreateDisk", "IdempotentParameterMismatch") > 0; got != row.differs {
					t.Errorf("ECS said that the calls differ: %v, want %v", got, row.differs)
				}
				if n := len(s.sim.Disks()); n != 1 {
					t.Errorf("%d disks were made of one name", n)
				}
				if got := s.say("publish d-1 i-a1"); !strings.Contains(got, "state:"+string(row.state)+" ") {
					t.Errorf("published: %s, want state %s", got, row.state)
				}
				s.say("create disk-2 size=20Gi zones=a type=cloud_essd")
				was, is := asked(s, "disk-1"), asked(s, "disk-2")
				was["tag "+disk.HistoryTag], was["tag "+disk.OwnerTag] = string(disk.HistoryNew), cluster
				if diff := cmp.Diff(was, is); diff != "" {
					t.Errorf("a call of the version before and the tag are not a call of this version:\n%s", diff)
				}
			})
		})
	}
}

// asked are the parameters of the first CreateDisk for a volume, without its name.
func asked(s *story, volume string) map[string]string {
	params := map[string]string{}
	for _, c := range s.sim.Calls() {
		if c.Action != "CreateDisk" || c.Params["DiskName"] != volume || len(params) > 0 {
			continue
		}
		for name, value := range c.Params {
			if n, ok := strings.CutSuffix(name, ".Key"); ok {
				name, value = "tag "+value, c.Params[n+".Value"]
			}
			if !strings.HasPrefix(name, "Tag.") {
				params[name] = strings.ReplaceAll(value, volume, "NAME")
			}
		}
	}
	return params
}
