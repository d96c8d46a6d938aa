package transport

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

// Action is one operation of the ECS API, with the SDK's types of its requests
// and replies.
type Action[Q requests.AcsRequest, R responses.AcsResponse] struct {
	action
	newRequest func() Q
	newReply   func() R
}

// action is what the calls of an Action have in common. The set is closed:
// metrics are labelled with the names.
type action struct {
	Name    string
	mutates bool
	timeout time.Duration // the longest that a call may take
	proof   string        // the field of a reply that says that it is whole
}

// The longest that a call may take. ECS answers later calls only after earlier
// ones of the same resource, so mutations may be slow.
const (
	createTimeout   = 36 * time.Second
	attachTimeout   = 36 * time.Second
	detachTimeout   = 17 * time.Second
	resizeTimeout   = 11 * time.Second
	changeTimeout   = 16 * time.Second
	snapshotTimeout = 26 * time.Second
	readTimeout     = 19 * time.Second
)

// The actions.
var (
	CreateDisk    = mutation("CreateDisk", createTimeout, "DiskId", ecs.CreateCreateDiskRequest, ecs.CreateCreateDiskResponse)
	DeleteDisk    = mutation("DeleteDisk", changeTimeout, "RequestId", ecs.CreateDeleteDiskRequest, ecs.CreateDeleteDiskResponse)
	AttachDisk    = mutation("AttachDisk", attachTimeout, "RequestId", ecs.CreateAttachDiskRequest, ecs.CreateAttachDiskResponse)
	DetachDisk    = mutation("DetachDisk", detachTimeout, "RequestId", ecs.CreateDetachDiskRequest, ecs.CreateDetachDiskResponse)
	ResizeDisk    = mutation("ResizeDisk", resizeTimeout, "RequestId", ecs.CreateResizeDiskRequest, ecs.CreateResizeDiskResponse)
	DescribeDisks = read("DescribeDisks", readTimeout, "Disks", ecs.CreateDescribeDisksRequest, ecs.CreateDescribeDisksResponse)

	TagResources   = mutation("TagResources", changeTimeout, "RequestId", ecs.CreateTagResourcesRequest, ecs.CreateTagResourcesResponse)
	UntagResources = mutation("UntagResources", changeTimeout, "RequestId", ecs.CreateUntagResourcesRequest, ecs.CreateUntagResourcesResponse)

	ModifyDiskSpec = mutation("ModifyDiskSpec", changeTimeout, "RequestId", ecs.CreateModifyDiskSpecRequest, ecs.CreateModifyDiskSpecResponse)
	// TryModifyDiskSpec is ModifyDiskSpec for a DryRun, which changes nothing.
	TryModifyDiskSpec   = read("ModifyDiskSpec", changeTimeout, "RequestId", ecs.CreateModifyDiskSpecRequest, ecs.CreateModifyDiskSpecResponse)
	ModifyDiskAttribute = mutation("ModifyDiskAttribute", changeTimeout, "RequestId",
		ecs.CreateModifyDiskAttributeRequest, ecs.CreateModifyDiskAttributeResponse)
	DescribeTasks = read("DescribeTasks", readTimeout, "TaskSet", ecs.CreateDescribeTasksRequest, ecs.CreateDescribeTasksResponse)

	CreateSnapshot      = mutation("CreateSnapshot", snapshotTimeout, "SnapshotId", ecs.CreateCreateSnapshotRequest, ecs.CreateCreateSnapshotResponse)
	DeleteSnapshot      = mutation("DeleteSnapshot", snapshotTimeout, "RequestId", ecs.CreateDeleteSnapshotRequest, ecs.CreateDeleteSnapshotResponse)
	DescribeSnapshots   = read("DescribeSnapshots", readTimeout, "Snapshots", ecs.CreateDescribeSnapshotsRequest, ecs.CreateDescribeSnapshotsResponse)
	CreateSnapshotGroup = mutation("CreateSnapshotGroup", snapshotTimeout, "SnapshotGroupId",
		ecs.CreateCreateSnapshotGroupRequest, ecs.CreateCreateSnapshotGroupResponse)
	DeleteSnapshotGroup = mutation("DeleteSnapshotGroup", snapshotTimeout, "RequestId",
		ecs.CreateDeleteSnapshotGroupRequest, ecs.CreateDeleteSnapshotGroupResponse)
	DescribeSnapshotGroups = read("DescribeSnapshotGroups", readTimeout, "SnapshotGroups",
		ecs.CreateDescribeSnapshotGroupsRequest, ecs.CreateDescribeSnapshotGroupsResponse)

	DescribeAvailableResource = read("DescribeAvailableResource", readTimeout, "RequestId",
		ecs.CreateDescribeAvailableResourceRequest, ecs.CreateDescribeAvailableResourceResponse)
	DescribeInstances     = read("DescribeInstances", readTimeout, "Instances", ecs.CreateDescribeInstancesRequest, ecs.CreateDescribeInstancesResponse)
	DescribeInstanceTypes = read("DescribeInstanceTypes", readTimeout, "InstanceTypes",
		ecs.CreateDescribeInstanceTypesRequest, ecs.CreateDescribeInstanceTypesResponse)
)

// Actions are the names of all actions, which the account must be allowed.
var Actions = []string{
	CreateDisk.Name, DeleteDisk.Name, AttachDisk.Name, DetachDisk.Name, ResizeDisk.Name, DescribeDisks.Name,
	TagResources.Name, UntagResources.Name, ModifyDiskSpec.Name, ModifyDiskAttribute.Name, DescribeTasks.Name,
	CreateSnapshot.Name, DeleteSnapshot.Name, DescribeSnapshots.Name, CreateSnapshotGroup.Name, DeleteSnapshotGroup.Name, DescribeSnapshotGroups.Name,
	DescribeAvailableResource.Name, DescribeInstances.Name, DescribeInstanceTypes.Name,
}

func mutation[Q requests.AcsRequest, R responses.AcsResponse](
	name string, timeout time.Duration, proof string, newRequest func() Q, newReply func() R,
) Action[Q, R] {
	return Action[Q, R]{action{name, true, timeout, proof}, newRequest, newReply}
}

func read[Q requests.AcsRequest, R responses.AcsResponse](
	name string, timeout time.Duration, proof string, newRequest func() Q, newReply func() R,
) Action[Q, R] {
	return Action[Q, R]{action{name, false, timeout, proof}, newRequest, newReply}
}

// Send makes one call, again and again while ECS throttles it. fill is called for every try with
// a fresh request, for the SDK keeps in a request what it signed. The errors are
// those of the tables in codes.go, ErrSuspended and ErrNotAdmitted.
func (a Action[Q, R]) Send(ctx context.Context, s *Session, fill func(Q)) (R, error) {
	var reply, none R
	fresh := func() (requests.AcsRequest, responses.AcsResponse) {
		request := a.newRequest()
		fill(request)
		reply = a.newReply()
		return request, reply
	}
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	turn := s.limiters[a.Name].Arrive()
	defer turn.Leave()
	for {
		if err := turn.Wait(limited); err != nil {
			return none, err
		}
		err := s.try(ctx, a.action, fresh)
		again := turn.Done(err)
		switch {
		case err == nil:
			return reply, nil
		case !again:
			return none, err
		}
	}
}

// isWhole says whether a reply holds what was asked for: ECS's gateway may answer
// 200 with nothing in it. An ID must not be empty, and a list must be there, for
// read as an empty one it would say that disks are gone.
func (a action) isWhole(reply responses.AcsResponse) bool {
	fields := reflect.ValueOf(reply).Elem()
	if proof := fields.FieldByName(a.proof); proof.Kind() == reflect.String {
		return proof.String() != ""
	}
	return fields.FieldByName("RequestId").String() != "" && strings.Contains(reply.GetHttpContentString(), `"`+a.proof+`"`)
}
