package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/sts"
)

// life is the life of one disk, and of what is made from it.
type life struct {
	*calls
	place
	client   *ecs.Client
	keys     *credentials.AccessKeyCredential
	instance string
	run      string // in names, tags and client tokens
	disk     string
}

const initializing = "403 IncorrectDiskStatus.Initializing"

// live returns whether every call was answered as the documentation says.
func live(p place, keys *credentials.AccessKeyCredential) bool {
	l := &life{calls: &calls{pause: 50 * time.Millisecond}, place: p, client: p.open(keys), keys: keys,
		instance: p.instances[0], run: fmt.Sprintf("gosdk-%d", time.Now().UnixMilli())}
	for _, step := range []func(){
		l.whereThingsAre, l.create, l.find, l.tag, l.attach, l.resize, l.modify, l.snapshot, l.detach, l.page, l.otherKeys,
	} {
		l.step(step)
	}
	for _, line := range l.wrong {
		fmt.Println(line)
	}
	fmt.Printf("alibaba-cloud-sdk-go with %s: %d calls, %d as expected\n", runtime.Version(), l.made, l.made-len(l.wrong))
	return len(l.wrong) == 0
}

func list(ids ...string) string {
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // strings can always be marshalled
	}
	return string(text)
}

func (l *life) whereThingsAre() {
	regions, err := l.client.DescribeRegions(ecs.CreateDescribeRegionsRequest())
	ok(l.calls, "the region is listed", regions, err,
		is("it is", slices.ContainsFunc(regions.Regions.Region, func(r ecs.Region) bool { return r.RegionId == l.region }), true))
	request := ecs.CreateDescribeInstancesRequest()
	request.InstanceIds = list(l.instance)
	instances, err := l.client.DescribeInstances(request)
	i := ecs.Instance{}
	if len(instances.Instances.Instance) == 1 {
		i = instances.Instances.Instance[0]
	}
	ok(l.calls, "the instance runs", instances, err,
		is("InstanceId", i.InstanceId, l.instance), is("Status", i.Status, "Running"), is("ZoneId", i.ZoneId, l.zone))
	types := ecs.CreateDescribeInstanceTypesRequest()
	types.InstanceTypes = &[]string{i.InstanceType}
	reply, err := l.client.DescribeInstanceTypes(types)
	t := ecs.InstanceType{}
	if len(reply.InstanceTypes.InstanceType) == 1 {
		t = reply.InstanceTypes.InstanceType[0]
	}
	ok(l.calls, "an instance type says how many disks it takes", reply, err, is("InstanceTypeId", t.InstanceTypeId, i.InstanceType),
		is("InstanceTypeFamily leads the type", strings.HasPrefix(i.InstanceType, t.InstanceTypeFamily+"."), true),
		is("DiskQuantity is above one", t.DiskQuantity > 1, true))
	system := ecs.CreateDescribeDisksRequest()
	system.InstanceId, system.DiskType = l.instance, "system"
	disks, err := l.client.DescribeDisks(system)
	ok(l.calls, "an instance has a system disk", disks, err, is("number of disks", len(disks.Disks.Disk), 1))
}

// order is a request for a disk.
func (l *life) order(token string) *ecs.CreateDiskRequest {
	r := ecs.CreateCreateDiskRequest()
	r.ZoneId, r.DiskCategory, r.PerformanceLevel, r.Size = l.zone, "cloud_essd", "PL1", requests.NewInteger(20)
	r.DiskName, r.Description, r.ClientToken = "数据盘-ä_go", `Ein Datenträger: 100% & 数据 + "=" 🙂 ~*`, token
	r.Tag = &[]ecs.CreateDiskTag{{Key: "run", Value: l.run}, {Key: "团队", Value: "存储 + Größe"}, {Key: "empty", Value: ""}}
	return r
}

func (l *life) create() {
	token := "token-" + l.run
	made, err := l.client.CreateDisk(l.order(token))
	ok(l.calls, "a disk is made", made, err, is("form of the ID", regexp.MustCompile(`^d-[a-z0-9]+$`).MatchString(made.DiskId), true))
	l.disk = made.DiskId
	again, err := l.client.CreateDisk(l.order(token))
	ok(l.calls, "the same token again is the same disk", again, err, is("DiskId", again.DiskId, l.disk))
	other := l.order(token)
	other.Size = "21"
	_, err = l.client.CreateDisk(other)
	l.refused("the same token for another size", err, "400 IdempotentParameterMismatch", "403 IdempotentParameterMismatch")
	for n, bad := range []struct {
		fact   string
		change func(*ecs.CreateDiskRequest)
		code   string
	}{
		{"a tag key twice", func(r *ecs.CreateDiskRequest) {
			r.Tag = &[]ecs.CreateDiskTag{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}
		}, "400 Duplicate.TagKey"},
		{"a name that begins with a digit", func(r *ecs.CreateDiskRequest) { r.DiskName = "1-disk" }, "400 InvalidDiskName.Malformed"},
		{"an unknown zone", func(r *ecs.CreateDiskRequest) { r.ZoneId = l.region + "-zz" }, "404 InvalidZoneId.NotFound"},
		{"less than PL3 takes", func(r *ecs.CreateDiskRequest) { r.PerformanceLevel = "PL3" }, "403 OperationDenied.PerformanceLevelNotMatch"},
	} {
		r := l.order(fmt.Sprintf("%s-%d", token, n))
		bad.change(r)
		_, err := l.client.CreateDisk(r)
		l.refused(bad.fact, err, bad.code)
	}
	l.settle(l.disk, "Available")
}

// show reads a disk; if there is none it has no DiskId.
func (l *life) show(id string) (ecs.Disk, *ecs.DescribeDisksResponse, error) {
	r := ecs.CreateDescribeDisksRequest()
	r.DiskIds = list(id)
	reply, err := l.client.DescribeDisks(r)
	if err != nil || len(reply.Disks.Disk) == 0 {
		return ecs.Disk{}, reply, err
	}
	return reply.Disks.Disk[0], reply, nil
}

// settle waits until a disk is in a state.
func (l *life) settle(id, state string) {
	l.until("a disk becomes "+state, func() string {
		d, _, err := l.show(id)
		if err != nil {
			return err.Error()
		}
		return is("Status", d.Status, state)
	})
}

func (l *life) find() {
	d, reply, err := l.show(l.disk)
	want := l.order("")
	tags := map[string]string{}
	for _, t := range d.Tags.Tag {
		tags[t.TagKey] = t.TagValue
	}
	ok(l.calls, "a disk is as it was ordered", reply, err,
		is("DiskName", d.DiskName, want.DiskName), is("Description", d.Description, want.Description), is("Size", d.Size, 20),
		is("Category", d.Category, "cloud_essd"), is("PerformanceLevel", d.PerformanceLevel, "PL1"), is("ZoneId", d.ZoneId, l.zone), is("Type", d.Type, "data"),
		is("SerialNumber", d.SerialNumber, strings.TrimPrefix(l.disk, "d-")),
		is("tag run", tags["run"], l.run), is("tag 团队", tags["团队"], "存储 + Größe"), is("number of tags", len(tags), 3))
	for fact, change := range map[string]func(*ecs.DescribeDisksRequest){
		"a search by tags": func(r *ecs.DescribeDisksRequest) {
			r.Tag = &[]ecs.DescribeDisksTag{{Key: "run", Value: l.run}, {Key: "团队", Value: "存储 + Größe"}}
		},
		"a search by name and tag": func(r *ecs.DescribeDisksRequest) {
			r.DiskName, r.Tag = want.DiskName, &[]ecs.DescribeDisksTag{{Key: "run", Value: l.run}}
		},
	} {
		r := ecs.CreateDescribeDisksRequest()
		change(r)
		reply, err := l.client.DescribeDisks(r)
		ok(l.calls, fact, reply, err, is("TotalCount", reply.TotalCount, 1), is("number of disks", len(reply.Disks.Disk), 1))
	}
	none := ecs.CreateDescribeDisksRequest()
	none.DiskIds = "[]"
	reply, err = l.client.DescribeDisks(none)
	ok(l.calls, "an empty list of IDs finds nothing", reply, err, is("number of disks", len(reply.Disks.Disk), 0))
	many := ecs.CreateDescribeDisksRequest()
	many.DiskIds = list(make([]string, 101)...)
	_, err = l.client.DescribeDisks(many)
	l.refused("101 IDs", err, "403 InvalidDiskIds.Malformed")
}

func (l *life) tag() {
	add := ecs.CreateTagResourcesRequest()
	add.ResourceType, add.ResourceId, add.Tag = "disk", &[]string{l.disk}, &[]ecs.TagResourcesTag{{Key: "tier", Value: "schnell"}}
	added, err := l.client.TagResources(add)
	ok(l.calls, "a tag is added", added, err)
	get := ecs.CreateListTagResourcesRequest()
	get.ResourceType, get.ResourceId = "disk", &[]string{l.disk}
	listed, err := l.client.ListTagResources(get)
	ok(l.calls, "tags are listed", listed, err, is("number of tags", len(listed.TagResources.TagResource), 4))
	remove := ecs.CreateUntagResourcesRequest()
	remove.ResourceType, remove.ResourceId, remove.TagKey = "disk", &[]string{l.disk}, &[]string{"tier", "empty"}
	removed, err := l.client.UntagResources(remove)
	ok(l.calls, "tags are taken away", removed, err)
	listed, err = l.client.ListTagResources(get)
	ok(l.calls, "tags that are gone are gone", listed, err, is("number of tags", len(listed.TagResources.TagResource), 2))
}

func (l *life) attach() {
	r := func() *ecs.AttachDiskRequest {
		r := ecs.CreateAttachDiskRequest()
		r.InstanceId, r.DiskId = l.instance, l.disk
		return r
	}
	nowhere := r()
	nowhere.InstanceId = "i-bp1thereisnosuchinst"
	_, err := l.client.AttachDisk(nowhere)
	l.refused("an attach to nothing", err, "404 InvalidInstanceId.NotFound")
	l.patiently("a disk is attached", initializing, func() error { _, err := l.client.AttachDisk(r()); return err })
	l.settle(l.disk, "In_use")
	d, reply, err := l.show(l.disk)
	ok(l.calls, "an attached disk says where", reply, err,
		is("InstanceId", d.InstanceId, l.instance), is("number of attachments", len(d.Attachments.Attachment), 1))
	_, err = l.client.AttachDisk(r())
	l.refused("a second attach", err, "403 IncorrectDiskStatus", "404 InvalidDisk.InUse")
	_, err = l.client.DeleteDisk(l.deletion(l.disk))
	l.refused("a deletion of a disk in use", err, "403 IncorrectDiskStatus", "403 DiskStillAttached")
}

func (l *life) resize() {
	r := func(size int) *ecs.ResizeDiskRequest {
		r := ecs.CreateResizeDiskRequest()
		r.DiskId, r.Type, r.NewSize = l.disk, "online", requests.NewInteger(size)
		return r
	}
	reply, err := l.client.ResizeDisk(r(40))
	ok(l.calls, "a disk grows while it is in use", reply, err)
	l.until("the new size is shown", func() string {
		d, _, err := l.show(l.disk)
		if err != nil {
			return err.Error()
		}
		return is("Size", d.Size, 40)
	})
	_, err = l.client.ResizeDisk(r(30))
	l.refused("a disk does not shrink", err, "403 InvalidDiskSize", "403 InvalidDiskSize.TooSmall", "400 LastOrderProcessing")
}

func (l *life) modify() {
	r := func() *ecs.ModifyDiskSpecRequest {
		r := ecs.CreateModifyDiskSpecRequest()
		r.DiskId = l.disk
		return r
	}
	same := r()
	same.DiskCategory, same.PerformanceLevel = "cloud_essd", "PL1"
	_, err := l.client.ModifyDiskSpec(same)
	l.refused("a change to what is", err, "403 NoChangeInDiskCategoryAndPerformanceLevel")
	auto := r()
	auto.DiskCategory = "cloud_auto"
	task, err := l.client.ModifyDiskSpec(auto)
	ok(l.calls, "a category is changed", task, err, is("TaskId is there", task.TaskId != "", true))
	l.until("the task ends", func() string {
		r := ecs.CreateDescribeTasksRequest()
		r.TaskIds = task.TaskId
		reply, err := l.client.DescribeTasks(r)
		if err != nil || len(reply.TaskSet.Task) != 1 {
			return fmt.Sprintf("it is not shown: %v", err)
		}
		return is("TaskStatus", reply.TaskSet.Task[0].TaskStatus, "Finished")
	})
	d, reply, err := l.show(l.disk)
	ok(l.calls, "the new category is shown", reply, err, is("Category", d.Category, "cloud_auto"))
}

func (l *life) snapshot() {
	r := func() *ecs.CreateSnapshotRequest {
		r := ecs.CreateCreateSnapshotRequest()
		r.DiskId, r.SnapshotName, r.ClientToken = l.disk, "快照-1", "cut-"+l.run
		return r
	}
	made, err := l.client.CreateSnapshot(r())
	ok(l.calls, "a snapshot is made", made, err)
	again, err := l.client.CreateSnapshot(r())
	ok(l.calls, "the same token again is the same snapshot", again, err, is("SnapshotId", again.SnapshotId, made.SnapshotId))
	l.until("a snapshot comes to its end", func() string {
		r := ecs.CreateDescribeSnapshotsRequest()
		r.SnapshotIds = list(made.SnapshotId)
		reply, err := l.client.DescribeSnapshots(r)
		if err != nil || len(reply.Snapshots.Snapshot) != 1 {
			return fmt.Sprintf("it is not shown: %v", err)
		}
		s := reply.Snapshots.Snapshot[0]
		return is("Status", s.Status, "accomplished") + is("SourceDiskId", s.SourceDiskId, l.disk) +
			is("SourceDiskSize", s.SourceDiskSize, "40") + is("SnapshotName", s.SnapshotName, "快照-1")
	})
	remove := ecs.CreateDeleteSnapshotRequest()
	remove.SnapshotId = made.SnapshotId
	removed, err := l.client.DeleteSnapshot(remove)
	ok(l.calls, "a snapshot is deleted", removed, err)
}

// deletion is a request to delete a disk.
func (l *life) deletion(id string) *ecs.DeleteDiskRequest {
	r := ecs.CreateDeleteDiskRequest()
	r.DiskId = id
	return r
}

func (l *life) erase(id string) {
	l.patiently("a disk is deleted", initializing, func() error { _, err := l.client.DeleteDisk(l.deletion(id)); return err })
}

func (l *life) detach() {
	r := func() *ecs.DetachDiskRequest {
		r := ecs.CreateDetachDiskRequest()
		r.InstanceId, r.DiskId = l.instance, l.disk
		return r
	}
	reply, err := l.client.DetachDisk(r())
	ok(l.calls, "a disk is detached", reply, err)
	l.settle(l.disk, "Available")
	_, err = l.client.DetachDisk(r())
	l.refused("a second detach", err, "404 InvalidDisk.AlreadyDetached", "403 DependencyViolation", "403 IncorrectDiskStatus")
	l.erase(l.disk)
	d, shown, err := l.show(l.disk)
	ok(l.calls, "a disk that is gone is not shown", shown, err, is("DiskId", d.DiskId, ""))
	_, err = l.client.DeleteDisk(l.deletion(l.disk))
	l.refused("a disk is deleted again", err, "404 InvalidDiskId.NotFound", "200")
}

func (l *life) page() {
	const count = 105
	var all []string
	for n := range count {
		r := l.order(fmt.Sprintf("%s-%d", l.run, n))
		r.Tag = &[]ecs.CreateDiskTag{{Key: "page", Value: l.run}}
		made, err := l.client.CreateDisk(r)
		all = append(all, ok(l.calls, "many disks", made, err).DiskId)
	}
	read := func(change func(*ecs.DescribeDisksRequest)) (*ecs.DescribeDisksResponse, error) {
		r := ecs.CreateDescribeDisksRequest()
		r.Tag = &[]ecs.DescribeDisksTag{{Key: "page", Value: l.run}}
		change(r)
		return l.client.DescribeDisks(r)
	}
	l.until("all are there", func() string {
		reply, err := read(func(*ecs.DescribeDisksRequest) {})
		if err != nil {
			return err.Error()
		}
		return is("TotalCount", reply.TotalCount, count)
	})
	found := map[string]bool{}
	for page, size := range []int{50, 50, 5, 0} {
		reply, err := read(func(r *ecs.DescribeDisksRequest) { r.PageNumber, r.PageSize = requests.NewInteger(page+1), "50" })
		ok(l.calls, fmt.Sprintf("page %d of 50", page+1), reply, err,
			is("number of disks", len(reply.Disks.Disk), size), is("TotalCount", reply.TotalCount, count))
		for _, d := range reply.Disks.Disk {
			found[d.DiskId] = true
		}
	}
	next := ""
	for n, size := range []int{40, 40, 25} {
		reply, err := read(func(r *ecs.DescribeDisksRequest) { r.MaxResults, r.NextToken = "40", next })
		ok(l.calls, "pages by token", reply, err, is("number of disks", len(reply.Disks.Disk), size), is("there is more", reply.NextToken != "", n < 2))
		next = reply.NextToken
		for _, d := range reply.Disks.Disk {
			delete(found, d.DiskId)
		}
	}
	if len(found) > 0 {
		l.fault("pages by token have what numbered pages have", "%d disks are in the latter alone", len(found))
	}
	batch := ecs.CreateDescribeDisksRequest()
	batch.DiskIds = list(all[:100]...)
	reply, err := l.client.DescribeDisks(batch)
	ok(l.calls, "100 IDs on a page of the usual size", reply, err, is("number of disks", len(reply.Disks.Disk), 10))
	for _, id := range all {
		l.erase(id)
	}
}

func (l *life) otherKeys() {
	session := l.assumeRole()
	for fact, try := range map[string]struct {
		keys  auth.Credential
		codes []string
	}{
		// 400 in the table of common errors; clients see 404.
		"an unknown key": {credentials.NewAccessKeyCredential("LTAI5tNobodysKey", l.keys.AccessKeySecret),
			[]string{"404 InvalidAccessKeyId.NotFound", "400 InvalidAccessKeyId.NotFound"}},
		"a wrong secret": {credentials.NewAccessKeyCredential(l.keys.AccessKeyId, "wrong"), []string{"400 SignatureDoesNotMatch"}},
		"a token not of the key": {credentials.NewStsTokenCredential(l.keys.AccessKeyId, l.keys.AccessKeySecret, "wrong"),
			[]string{"400 InvalidSecurityToken.MismatchWithAccessKey", "400 InvalidSecurityToken.Malformed"}},
		"temporary keys":           {session, []string{"200"}},
		"the keys are right still": {l.keys, []string{"200"}},
	} {
		_, err := l.open(try.keys).DescribeRegions(ecs.CreateDescribeRegionsRequest())
		l.refused(fact, err, try.codes...)
	}
}

// assumeRole returns temporary keys of the role.
func (l *life) assumeRole() *credentials.StsTokenCredential {
	client, err := sts.NewClientWithOptions(l.region, sdk.NewConfig(), l.keys)
	if err != nil {
		panic(err) // there is nothing that could be wrong
	}
	client.Domain = l.address
	who, err := client.GetCallerIdentity(sts.CreateGetCallerIdentityRequest())
	ok(l.calls, "who asks is known", who, err, is("IdentityType", who.IdentityType, "Account"))
	request := sts.CreateAssumeRoleRequest()
	request.RoleArn, request.RoleSessionName = "acs:ram::"+who.AccountId+":role/"+l.role, "foreign"
	reply, err := client.AssumeRole(request)
	ok(l.calls, "a role is assumed", reply, err)
	return credentials.NewStsTokenCredential(reply.Credentials.AccessKeyId, reply.Credentials.AccessKeySecret, reply.Credentials.SecurityToken)
}
