package actions

import (
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeTasksAction = Action{
	Name:     "DescribeTasks",
	required: []string{"RegionId"},
	optional: []string{
		"TaskIds", "TaskStatus", "TaskAction", "TaskGroupId", "ResourceIds.N", "StartTime", "EndTime", "PageNumber", "PageSize",
	},
	lags: true,
	do:   describeTasks,
}

// describeTasks shows the tasks that pass every filter, the newest first.
func describeTasks(req *Request) (wire.Object, *wire.Refusal) {
	var ids []string
	if list := req.Params["TaskIds"]; list != "" {
		ids = strings.Split(list, ",")
	}
	resources := req.Params.List("ResourceIds")
	switch {
	case len(ids) > 100:
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter TaskIds is not valid: at most 100 tasks.")
	case len(resources) > 100:
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter ResourceIds.N is not valid: at most 100 resources.")
	case !req.Params.OneOf("TaskStatus", state.TaskStates...):
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter TaskStatus %q is not valid: %s.", req.Params["TaskStatus"], config.List(state.TaskStates))
	}
	from, to, no := req.Params.Between("StartTime", "EndTime")
	if no != nil {
		return nil, no
	}
	page, no := readPage(req, wire.Paging{DefaultSize: 10, MaxSize: 100})
	if no != nil {
		return nil, no
	}
	if len(resources) == 1 {
		req.Disk = resources[0]
	}
	var found []*state.Task
	for t := range view(req).Tasks() {
		if (ids == nil || slices.Contains(ids, t.ID)) && (resources == nil || slices.Contains(resources, t.Change.Disk.ID)) &&
			req.Params.OneOf("TaskStatus", t.Status) && req.Params.OneOf("TaskAction", "ModifyDiskSpec") && req.Params["TaskGroupId"] == "" &&
			(from.IsZero() || !t.Created.Before(from)) && (to.IsZero() || !t.Created.After(to)) {
			found = append(found, t)
		}
	}
	shown, reply := wire.Cut(page, found, func(t *state.Task) int { return -t.Seq })
	reply["RegionId"], reply["TaskSet"] = req.Rules.Region, wire.Wrapped("Task", wire.Each(shown, renderTask))
	return reply, nil
}

// renderTask returns a task as DescribeTasks shows it.
func renderTask(t *state.Task) wire.Object {
	reason := ""
	if t.Status == state.TaskFailed {
		reason = "InternalError"
	}
	return wire.Object{
		"TaskId": t.ID, "TaskAction": "ModifyDiskSpec", "TaskStatus": t.Status, "CreationTime": wire.Stamp(t.Created),
		"FinishedTime": wire.Stamp(t.Finished), "ResourceId": t.Change.Disk.ID, "SupportCancel": "false", "FailedReason": reason,
	}
}
