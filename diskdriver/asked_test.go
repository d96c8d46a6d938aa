package diskdriver

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// TestTheDriverCanAllThatCSIHas holds what the services say they can against the
// lists of the CSI specification: whatever a later version adds shows here.
func TestTheDriverCanAllThatCSIHas(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		controller, err := s.driver.controller.ControllerGetCapabilities(t.Context(), nil)
		s.must(err)
		var can []string
		for _, c := range controller.GetCapabilities() {
			can = append(can, c.GetRpc().GetType().String())
		}
		checkAll(t, "the controller", can, csi.ControllerServiceCapability_RPC_Type_name)
		if len(can) != 16 {
			t.Errorf("the controller has %d capabilities, want all sixteen: %v", len(can), can)
		}
		groups, err := s.driver.controller.GroupControllerGetCapabilities(t.Context(), nil)
		s.must(err)
		can = nil
		for _, c := range groups.GetCapabilities() {
			can = append(can, c.GetRpc().GetType().String())
		}
		checkAll(t, "the group controller", can, csi.GroupControllerServiceCapability_RPC_Type_name)
		plugin, err := s.driver.identity.GetPluginCapabilities(t.Context(), nil)
		s.must(err)
		var services, expansions []string
		for _, c := range plugin.GetCapabilities() {
			if c.GetService() != nil {
				services = append(services, c.GetService().GetType().String())
			} else {
				expansions = append(expansions, c.GetVolumeExpansion().GetType().String())
			}
		}
		services = append(services, "SNAPSHOT_METADATA_SERVICE") // a service of changed blocks, of which ECS's API has none
		checkAll(t, "the plugin", services, csi.PluginCapability_Service_Type_name)
		checkAll(t, "the plugin", expansions, csi.PluginCapability_VolumeExpansion_Type_name)
	})
}

// checkAll wants every name of the specification but those that mean nothing.
func checkAll(t *testing.T, who string, can []string, all map[int32]string) {
	t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for _, name := range all {
		if name != "UNKNOWN" {
			want[name] = true
		}
	}
	for _, name := range can {
		if got[name] {
			t.Errorf("%s says %s twice", who, name)
		}
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-CSI +driver):\n%s", who, diff)
	}
}

// TestWhatAClassSaysIsAskedOfECS has a row for each parameter of a class that
// ECS is told of, and what it is told.
func TestWhatAClassSaysIsAskedOfECS(t *testing.T) {
	const volume = "create new size=20Gi zones=a "
	for _, test := range []struct {
		command, action string
		want            map[string]string
	}{
		{volume + "type=cloud_essd", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd"}},
		{volume + "type=cloud_essd encrypted=true", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "Encrypted": "true"}},
		{volume + "type=cloud_essd encrypted=yes kmsKeyId=key-1", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "Encrypted": "true", "KMSKeyId": "key-1"}},
		{volume + "type=cloud_essd encrypted=1 alibabacloud.com/kms-key-id=key-1", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "Encrypted": "true", "KMSKeyId": "key-1"}},
		{volume + "type=cloud_essd resourceGroupId=rg-1", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "ResourceGroupId": "rg-1"}},
		{volume + "type=cloud_essd performanceLevel=PL0", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "PerformanceLevel": "PL0"}},
		{volume + "type=cloud_essd performanceLevel=PL1 storageClusterId=dbsc-1", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "PerformanceLevel": "PL1", "StorageClusterId": "dbsc-1"}},
		{volume + "type=cloud_auto provisionedIops=1000", "CreateDisk", map[string]string{"DiskCategory": "cloud_auto", "ProvisionedIops": "1000"}},
		{volume + "type=cloud_auto burstingEnabled=true", "CreateDisk", map[string]string{"DiskCategory": "cloud_auto", "BurstingEnabled": "true"}},
		{volume + "type=cloud_essd multiAttach=true block mode=MULTI_NODE_MULTI_WRITER", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "MultiAttach": "Enabled"}},
		{volume + "type=cloud_essd multiAttach=true mode=MULTI_NODE_READER_ONLY", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "MultiAttach": "Enabled"}},
		{volume + "type=cloud_essd mode=SINGLE_NODE_SINGLE_WRITER", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd"}},
		{volume + "type=cloud_essd mode=SINGLE_NODE_MULTI_WRITER", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd"}},
		{volume + "type=cloud_regional_disk_auto", "CreateDisk", map[string]string{"DiskCategory": "cloud_regional_disk_auto", "ZoneId": ""}},
		{volume + "type=cloud_essd diskTags=team:web,stage:test diskTags/team=db", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "tag team": "db", "tag stage": "test"}},
		{volume + "type=cloud_essd mutable.type=cloud_auto mutable.provisionedIops=500 mutable.diskTags/team=db", "CreateDisk", map[string]string{"DiskCategory": "cloud_auto", "ProvisionedIops": "500", "tag team": "db"}},
		{volume + "type=cloud_essd source=s-1", "CreateDisk", map[string]string{"DiskCategory": "cloud_essd", "SnapshotId": fullID("s-1"), "tag topodisk.io/state": ""}},
		{"snapshot new d-1 retentionDays=7", "CreateSnapshot", map[string]string{"RetentionDays": "7"}},
		{"snapshot new d-1 resourceGroupId=rg-1 snapshotTags/team=web", "CreateSnapshot", map[string]string{"ResourceGroupId": "rg-1", "tag team": "web"}},
		{"group new d-1 resourceGroupId=rg-1 snapshotTags/team=web", "CreateSnapshotGroup", map[string]string{"ResourceGroupId": "rg-1", "tag team": "web"}},
	} {
		t.Run(test.command, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
				s.ok("snapshot snap-1 d-1")
				s.ok(test.command)
				want := map[string]string{"RegionId": "cn-hangzhou"}
				switch test.action {
				case "CreateDisk":
					maps.Copy(want, map[string]string{"ZoneId": "cn-hangzhou-a", "Size": "20", "DiskName": "new", "ClientToken": "n:new", "tag csi.alibabacloud.com/volume-name": "new", "tag topodisk.io/state": "new"})
				case "CreateSnapshot":
					maps.Copy(want, map[string]string{"DiskId": fullID("d-1"), "SnapshotName": "new", "ClientToken": "n:new", "tag csi.alibabacloud.com/snapshot-name": "new"})
				case "CreateSnapshotGroup":
					maps.Copy(want, map[string]string{"DiskId.1": fullID("d-1"), "Name": "new", "ClientToken": "n:group new", "tag csi.alibabacloud.com/group-snapshot": "new"})
				}
				maps.Copy(want, map[string]string{"tag ack.aliyun.com": cluster, "tag createdby": "topodisk", "tag k8s.aliyun.com": "true", "tag topodisk.io/cluster": cluster})
				maps.Copy(want, test.want)
				maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
				if diff := cmp.Diff(want, lastAsked(s.sim, test.action)); diff != "" {
					t.Errorf("ECS is asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// lastAsked returns the parameters of the last call of an action, the tags by
// their keys.
func lastAsked(sim *ecssim.Server, action string) map[string]string {
	asked := map[string]string{}
	for _, c := range sim.Calls() {
		if c.Action != action {
			continue
		}
		clear(asked)
		for name, value := range c.Params {
			number, isKey := strings.CutSuffix(name, ".Key")
			switch {
			case isKey:
				asked["tag "+value] = c.Params[number+".Value"]
			case !strings.HasPrefix(name, "Tag."):
				asked[name] = value
			}
		}
	}
	return asked
}

// TestADiskThatLivesWithItsInstance: none is made, for it could not move with its
// Pod; those that there are are published and deleted like others.
func TestADiskThatLivesWithItsInstance(t *testing.T) {
	for _, category := range []disk.Category{"elastic_ephemeral_disk_standard", "elastic_ephemeral_disk_premium"} {
		t.Run(string(category), func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				answer := s.say("create disk-1 size=64Gi zones=a type=" + string(category))
				if !strings.HasPrefix(answer, "InvalidArgument: parameter type: ") || !strings.Contains(answer, "lives and dies with one instance") || !strings.Contains(answer, "allowed are cloud,") {
					t.Errorf("a new one: %s, want the reason and what is allowed", answer)
				}
				if n := s.sim.Count("CreateDisk", ""); n > 0 {
					t.Fatalf("%d CreateDisk", n)
				}
				client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: s})
				s.must(err)
				_, err = client.Create(t.Context(), disk.Spec{Name: "older", Tags: disk.Tags{disk.OwnerTag: cluster}}, disk.Attempt{Zone: "cn-hangzhou-a", Category: category, Size: 64}, "older")
				s.must(err)
				s.must(s.sim.AddInstance(ecssim.Instance{ID: "i-eed", Zone: "cn-hangzhou-a", Type: "ecs.gn8is.4xlarge"}))
				for range 2 {
					s.ok("publish d-1 i-eed")
					if got := lastAsked(s.sim, "AttachDisk")["DeleteWithInstance"]; got != "true" {
						t.Errorf("attached with DeleteWithInstance %q, which ECS refuses", got)
					}
					s.ok("unpublish d-1 i-eed")
				}
				if answer := s.say("publish d-1 i-a2"); !strings.HasPrefix(answer, "FailedPrecondition: ") {
					t.Errorf("to another instance than its own: %s", answer)
				}
				s.ok("get d-1")
				s.ok("delete d-1")
				if left := s.sim.Disks(); len(left) > 0 {
					t.Errorf("left are %v", left)
				}
			})
		})
	}
}

// TestAResizeAndAChangeAtOnceBothTakePlace repeats both as the sidecars do, in one
// process, and in one that ends between any two calls.
func TestAResizeAndAChangeAtOnceBothTakePlace(t *testing.T) {
	for name, mortal := range map[string]bool{"one process": false, "a new process each time": true} {
		t.Run(name, func(t *testing.T) {
			promise(t, func(t *testing.T, s *story) {
				latency := s.config.Latency
				latency.Modify, latency.Order = 20*time.Second, 5*time.Second
				s.must(s.sim.SetLatency(latency))
				const volumes = 20
				var open []func() string
				for n := range volumes {
					s.ok(fmt.Sprintf("create disk-%d size=20Gi zones=a type=cloud_essd", n))
					id := fmt.Sprintf("d-%d", n+1)
					change := &csi.ControllerModifyVolumeRequest{VolumeId: s.id(id), MutableParameters: map[string]string{"type": "cloud_auto", "provisionedIops": "100"}}
					open = append(open,
						func() string { return s.call("ControllerModifyVolume", change, "timeout=7s") },
						func() string {
							return s.call("ControllerExpandVolume", s.expandRequest([]string{id, "size=30Gi"}), "timeout=7s")
						})
				}
				for tries := 0; len(open) > 0; tries++ {
					answers := make([]string, len(open))
					var all sync.WaitGroup
					for n, call := range open {
						all.Go(func() { answers[n] = call() })
					}
					all.Wait()
					var left []func() string
					for n, answer := range answers {
						switch {
						case strings.HasPrefix(answer, "OK"):
						case !mayBeUnderWay(answer) || tries > 20:
							t.Fatalf("after %d tries: %s", tries, answer)
						default:
							left = append(left, open[n])
						}
					}
					if open = left; mortal {
						s.do([]string{"restart"})
					}
					time.Sleep(time.Second)
				}
				for _, d := range s.sim.Disks() {
					if d.Size != 30 || d.Category != "cloud_auto" {
						t.Errorf("disk %s is %s of %d GiB", d.ID, d.Category, d.Size)
					}
				}
				for _, action := range []string{"ModifyDiskSpec", "ResizeDisk"} {
					if n := s.sim.Count(action, ""); n != volumes {
						t.Errorf("%d %s for %d volumes", n, action, volumes)
					}
				}
			})
		})
	}
}
