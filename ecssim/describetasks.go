package ecssim

import (
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeTasks = action{
	name:     "DescribeTasks",
	required: []string{"RegionId"},
	optional: []string{
		"TaskIds", "TaskStatus", "TaskAction", "TaskGroupId", "ResourceIds.N", "StartTime", "EndTime", "PageNumber", "PageSize",
	},
	do: (*Server).describeTasks,
}

// The states of a task.
const (
	taskProcessing = "Processing"
	taskFinished   = "Finished"
	taskFailed     = "Failed"
)

// taskStates are the values that DescribeTasks takes for TaskStatus.
var taskStates = []string{"Deleted", taskFailed, taskFinished, "Paused", "Pending", taskProcessing}

// task is a change that takes its time.
type task struct {
	seq      int // in the order of creation
	id       string
	change   respec
	status   string
	created  time.Time
	finished time.Time
}

// task returns a task, nil if it does not exist.
func (s *Server) task(id string) *task {
	for _, t := range s.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

// keptTasks is how many tasks there are at most, but for those that are
// Processing. No public source says how long ECS keeps them.
const keptTasks = 1000

// addTask adds a task, and drops the oldest that has ended if there are many.
func (s *Server) addTask(t *task) {
	s.tasks = append(s.tasks, t)
	if len(s.tasks) <= keptTasks {
		return
	}
	if i := slices.IndexFunc(s.tasks, func(t *task) bool { return t.status != taskProcessing }); i >= 0 {
		s.earlier.touch(s.tasks[i].id)
		s.tasks = slices.Delete(s.tasks, i, i+1)
	}
}

// describeTasks shows the tasks that pass every filter, the newest first.
func (s *Server) describeTasks(x *exchange) (wire.Object, *wire.Refusal) {
	var ids []string
	if list := x.Params["TaskIds"]; list != "" {
		ids = strings.Split(list, ",")
	}
	resources := x.Params.List("ResourceIds")
	switch {
	case len(ids) > 100:
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter TaskIds is not valid: at most 100 tasks.")
	case len(resources) > 100:
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter ResourceIds.N is not valid: at most 100 resources.")
	case !x.Params.OneOf("TaskStatus", taskStates...):
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter TaskStatus %q is not valid: %s.", x.Params["TaskStatus"], config.List(taskStates))
	}
	from, to, no := x.Params.Between("StartTime", "EndTime")
	if no != nil {
		return nil, no
	}
	page, no := s.readPage(x, wire.Paging{DefaultSize: 10, MaxSize: 100})
	if no != nil {
		return nil, no
	}
	if len(resources) == 1 {
		x.disk = resources[0]
	}
	var found []*task
	for t := range s.tasksFor(x) {
		if (ids == nil || slices.Contains(ids, t.id)) && (resources == nil || slices.Contains(resources, t.change.disk.id)) &&
			x.Params.OneOf("TaskStatus", t.status) && x.Params.OneOf("TaskAction", "ModifyDiskSpec") && x.Params["TaskGroupId"] == "" &&
			(from.IsZero() || !t.created.Before(from)) && (to.IsZero() || !t.created.After(to)) {
			found = append(found, t)
		}
	}
	shown, reply := wire.Cut(page, found, func(t *task) int { return -t.seq })
	reply["RegionId"], reply["TaskSet"] = s.config.Region, wire.Wrapped("Task", wire.Each(shown, (*task).render))
	return reply, nil
}

// TaskState is a change of a disk's spec that takes its time.
type TaskState struct {
	ID       string     `json:"id"`
	Disk     string     `json:"disk"`
	From     string     `json:"from"`   // category and level
	To       string     `json:"to"`     // category and level
	Status   string     `json:"status"` // Processing, Finished or Failed
	Created  time.Time  `json:"created"`
	Finished *time.Time `json:"finished,omitempty"`
}

func (s *Server) taskStates() []TaskState { return wire.Each(s.tasks, (*task).export) }

func (t *task) export() TaskState {
	st := TaskState{
		ID: t.id, Disk: t.change.disk.id, From: t.change.from.String(), To: t.change.to.String(), Status: t.status, Created: t.created,
	}
	if !t.finished.IsZero() {
		finished := t.finished
		st.Finished = &finished
	}
	return st
}

func (t *task) render() wire.Object {
	reason := ""
	if t.status == taskFailed {
		reason = "InternalError"
	}
	return wire.Object{
		"TaskId": t.id, "TaskAction": "ModifyDiskSpec", "TaskStatus": t.status, "CreationTime": wire.Stamp(t.created),
		"FinishedTime": wire.Stamp(t.finished), "ResourceId": t.change.disk.id, "SupportCancel": "false", "FailedReason": reason,
	}
}
